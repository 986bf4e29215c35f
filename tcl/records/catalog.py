"""Public data sets of measured tensor programs: what, licence, size, where, and how to import them.

What is not known for certain is written "unknown"; nothing is downloaded from here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublicData:
    """One public data set. `import_command` works on what a person downloads, as it comes."""

    name: str
    title: str
    what: str
    records: str
    size: str
    licence: str
    where: str
    import_command: str
    remarks: str = ""


CATALOG = (
    PublicData(
        name="tenset",
        title="TenSet (NeurIPS 2021 Datasets and Benchmarks)",
        what="Ansor records of random programs of the tasks of 120 networks on Intel Platinum 8272CL, Intel E5-2673 v4, AMD EPYC 7452, "
        "ARM Graviton2, NVIDIA K80 and NVIDIA T4",
        records="51,577,248 of 13,848 tasks (its README)",
        size="unknown",
        licence="Apache-2.0 for the code (a fork of Apache TVM); of the data: unknown",
        where="github.com/tlc-pack/tenset, docs/get_started_with_cost_model_experiments.md: dataset_v3.3.zip on Google Drive, "
        "file id 1hciRGyXcGY9fK_owgvlJow8P_l8xYIVJ",
        import_command="tcl data import dataset/measure_records dataset/network_info --platforms-map MAP --out tenset   "
        "(MAP: one line a folder, e.g. `e5-2673/ -> intel-e5-2673`)",
        remarks="network_info and all_tasks.pkl are Python pickles, which run code when loaded: they are not. Only the workload keys and "
        "weights are picked out of network_info/*.task.pkl, to tell which network holds a task. Operators and extents are told by the "
        "loops that the schedules split.",
    ),
    PublicData(
        name="roller",
        title="Ansor and AutoTVM logs of Roller (OSDI 2022)",
        what="Ansor records of convolution, depthwise convolution, matrix product, pooling, reduction and elementwise operators, "
        "about 1,000 trials a workload, on NVIDIA V100, NVIDIA K80 and AMD MI50",
        records="232,814 of 111 tasks in the Ansor logs (counted)",
        size="5.6 MB, the Ansor logs gzipped one by one (counted)",
        licence="MIT",
        where="github.com/microsoft/nnfusion, branch osdi22_artifact, artifacts/{microbenchmark,Table3,Table4}/tvm/ansor",
        import_command="tcl data import v100 k80 mi50 --platforms-map MAP --out roller   "
        "(MAP: `v100/ -> v100`, `k80/ -> k80`, `mi50/ -> mi50`)",
        remarks="Search logs, not random samples. Two 3x3 convolutions were run with padding on the NVIDIA GPUs and without on MI50, so "
        "that their extents differ by two rows and columns; they are one task here.",
    ),
    PublicData(
        name="tcl-paper",
        title="The data set of the TCL paper (arXiv 2604.12891)",
        what="Tensor programs measured on Intel i7-12700F and NVIDIA RTX 3080 Ti",
        records="unknown",
        size="unknown",
        licence="of the paper CC BY 4.0; of the data: unknown",
        where="unknown: see the paper, arxiv.org/abs/2604.12891",
        import_command="tcl data import FOLDER --platform i7-12700f --out tcl-paper   "
        "(if it is published as Ansor, AutoTVM or MetaSchedule logs)",
    ),
    PublicData(
        name="mlc-llm",
        title="MetaSchedule database of MLC LLM",
        what="MetaSchedule records of the operators of language models, tuned for Apple Metal",
        records="33 (counted)",
        size="140 kB gzipped (counted)",
        licence="Apache-2.0",
        where="github.com/mlc-ai/mlc-llm, log_db/ of older revisions",
        import_command="tcl data import log_db --platform apple-metal --out mlc-llm",
        remarks="Written by an older TVM; its modules can be read here but not compiled by today's.",
    ),
)
