"""Tokens of the three formats: what each primitive becomes, the cache, speed."""

import gzip
from pathlib import Path

import numpy as np
import orjson
import pytest

from tcl.errors import UserError
from tcl.features.flat import FLAT_FEATURES, flat_features, flat_of
from tcl.features.tokens import tokenize, tokens_of
from tcl.features.vocabulary import AXIS, EXTENT, FACTOR, KIND, LENGTH, OUTER, ROLE, VALUE
from tcl.programs.dataset import Dataset
from tcl.programs.types import Program, Task
from tcl.programs.writer import Writer

LOGS = Path(__file__).parents[2] / "shared" / "data"
if not LOGS.exists():
    LOGS = Path(__file__).parents[3] / "shared" / "data"
needs_logs = pytest.mark.skipif(not LOGS.exists(), reason="the folder shared/data with published logs is not here")

ANSOR = (
    '[["CHW",3,"local"],["SP",3,0,128,[1,16,1,2],1],["SP",3,5,64,[2,8,1,2],1],["SP",3,10,256,[32,1],1],["FSP",4,0,1,3],'
    '["CA",3,4,5],["CHR",2,"shared",[3]],["FU",5,[0,1]],["AN",5,0,5],["FFSP",4,0,[2,1],1,1],["AN",4,1,6],'
    '["PR",5,0,"auto_unroll_max_step$16"]]'
)


def trace(tile=(4, 8, 2, 1), reduction=(16, 8), unroll=2, location=3) -> str:
    instructions = [
        ["GetSBlock", [], ["C", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2"]],
        ["SamplePerfectTile", ["l1"], [4, 64], ["v3", "v4", "v5", "v6"]],
        ["Split", ["l1", "v3", "v4", "v5", "v6"], [1, 0], ["l7", "l8", "l9", "l10"]],
        ["SamplePerfectTile", ["l2"], [2, 64], ["v11", "v12"]],
        ["Split", ["l2", "v11", "v12"], [1, 0], ["l13", "l14"]],
        ["Reorder", ["l7", "l8", "l13", "l9", "l14", "l10"], [], []],
        ["SampleCategorical", [], [[0, 16, 64, 512], [0.25, 0.25, 0.25, 0.25]], ["v15"]],
        ["Annotate", ["b0", "v15"], ["meta_schedule.unroll_explicit"], []],
        ["SampleComputeLocation", ["b0"], [], ["l16"]],
        ["ReverseComputeAt", ["b0", "l16"], [1, -1], []],
        ["EnterPostproc", [], [], []],
        ["Unannotate", ["b0"], ["meta_schedule.unroll_explicit"], []],
    ]
    return orjson.dumps([instructions, [[2, list(tile)], [4, list(reduction)], [7, unroll], [9, location]]]).decode()


def test_ansor_steps_become_self_contained_tokens():
    tokens = tokenize([ANSOR], "ansor")
    kind, numbers = tokens.kind[0], tokens.numbers[0].astype(float)
    assert tokens.length[0] == 12 and not tokens.kind[0, 12:].any() and not numbers[12:].any()
    assert kind[:4].tolist() == [KIND["cache_write_local"], KIND["split"], KIND["split"], KIND["split"]]
    assert numbers[1, [EXTENT, OUTER]].tolist() == [7, 2] and numbers[1, FACTOR : FACTOR + 4].tolist() == [0, 4, 0, 1]
    assert numbers[1, ROLE] == 1 and numbers[3, ROLE] == -1  # two factors beside four: a reduction
    follow = numbers[4]
    assert kind[4] == KIND["follow_split"] and follow[FACTOR : FACTOR + 4].tolist() == [0, 4, 1, 0]  # the rest in its last factor
    assert kind[8] == KIND["block_x"] and kind[10] == KIND["thread_x"]
    assert kind[9] == KIND["follow_fused_split"] and numbers[9, FACTOR] == np.log2(16 * 8)
    assert kind[11] == KIND["pragma_unroll"] and numbers[11, VALUE] == pytest.approx(np.log2(17), abs=0.01)


def test_trace_decisions_sit_on_the_instructions_that_use_them():
    tokens = tokenize([trace()], "metaschedule")
    kind, numbers = tokens.kind[0], tokens.numbers[0].astype(float)
    assert kind[: tokens.length[0]].tolist() == [KIND[k] for k in ("split", "split", "reorder", "pragma_unroll", "reverse_compute_at")]
    assert numbers[0, EXTENT] == 6 and numbers[0, OUTER] == 2 and numbers[0, FACTOR : FACTOR + 3].tolist() == [3, 1, 0]
    assert numbers[0, ROLE] == 1 and numbers[1, ROLE] == -1 and numbers[1, AXIS] == 1
    assert numbers[3, VALUE] == pytest.approx(np.log2(65), abs=0.01)  # the candidate, not its index
    assert numbers[4, VALUE] == pytest.approx(np.log2(6), abs=0.01)


def test_programs_of_one_trace_differ_only_in_their_decisions_and_order_is_kept():
    texts = [trace(unroll=i % 4, location=(-1, -2, 5)[i % 3]) for i in range(50)]
    together = tokenize(texts, "metaschedule")
    for row in (0, 7, 13, 49):
        alone = tokenize([texts[row]], "metaschedule")
        assert np.array_equal(alone.numbers[0], together.numbers[row]) and np.array_equal(alone.kind[0], together.kind[row])
    assert len({n.tobytes() for n in together.numbers}) == 12


def test_trace_without_decisions():
    tokens = tokenize(['[[["GetSBlock",[],["C","main"],["b0"]],["ComputeInline",["b0"],[],[]]],[]]'], "metaschedule")
    assert tokens.length.tolist() == [1] and tokens.kind[0, 0] == KIND["compute_inline"]


def test_autotvm_knobs():
    text = '[["tile_f","sp",[-1,3,7,4]],["tile_rc","sp",[-1,63]],["auto_unroll_max_step","ot",512]]'
    tokens = tokenize([text], "autotvm")
    assert tokens.kind[0, :3].tolist() == [KIND["split"], KIND["split"], KIND["pragma_unroll"]]
    assert tokens.numbers[0, 0, FACTOR + 2] == 2 and tokens.numbers[0, 0, ROLE] == 1 and tokens.numbers[0, 1, ROLE] == -1


def test_formats_may_be_mixed():
    tokens = tokenize([ANSOR, trace(), ANSOR], ["ansor", "metaschedule", "ansor"])
    assert tokens.length.tolist() == [12, 5, 12] and np.array_equal(tokens.numbers[0], tokens.numbers[2])


def test_a_long_program_is_cut_and_counted():
    long = "[" + ",".join(['["CI",1]'] * (LENGTH + 9)) + "]"
    tokens = tokenize([long, ANSOR], "ansor")
    assert tokens.cut == 1 and tokens.length.tolist() == [LENGTH, 12]


@pytest.mark.parametrize(("text", "name"), [("nonsense", "ansor"), ("[1,2]", "metaschedule"), (ANSOR, "tiramisu"), ("[[3]]", "autotvm")])
def test_bad_schedules_are_a_users_error(text, name):
    with pytest.raises(UserError):
        tokenize([text], name)


def test_no_programs():
    assert len(tokenize([], "ansor")) == 0


@needs_logs
def test_published_records_have_no_unknown_primitive_and_are_not_cut():
    lines = [
        line for f in sorted((LOGS / "roller_osdi22/v100/conv").glob("*.gz"))[:6] for line in gzip.decompress(f.read_bytes()).splitlines()
    ]
    texts = [orjson.dumps(orjson.loads(line)["i"][1][1]).decode() for line in lines]
    tokens = tokenize(texts, "ansor")
    assert tokens.cut == 0 and (tokens.kind != KIND["other"]).all()


def dataset_of(path: Path, texts: list[str]) -> Dataset:
    task = Task("matmul", "matmul", "metaschedule", "w", (64, 128), 1e6, 1e4)
    dataset = Dataset.create(path)
    with Writer(dataset) as writer:
        writer.add_tasks([task])
        writer.add_programs([Program(task.id, t) for t in texts])
    return dataset.refresh()


def test_tokens_of_a_dataset_are_kept_and_grow_with_it(tmp_path):
    dataset = dataset_of(tmp_path / "d", [trace(unroll=i) for i in range(3)])
    first = tokens_of(dataset)
    assert len(first) == 3 and isinstance(first.kind, np.memmap)
    dataset = dataset_of(tmp_path / "d", [trace(location=i) for i in range(5)])
    ids = dataset.programs(["program"])["program"].to_numpy()
    grown = tokens_of(dataset)
    assert np.array_equal(grown.program, ids)
    assert len(list((tmp_path / "d" / "cache").iterdir())) == 1
    chosen = tokens_of(dataset, ids[[4, 0]])
    schedules = dataset.programs()["schedule"].tolist()
    assert np.array_equal(chosen.numbers, tokenize([schedules[4], schedules[0]], "metaschedule").numbers)
    with pytest.raises(UserError):
        tokens_of(dataset, np.array([12345]))


def test_tokens_of_a_read_only_dataset_lie_in_the_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "work"))
    dataset = dataset_of(tmp_path / "d", [trace()])
    (tmp_path / "d" / "cache").write_text("not a folder: what a read-only dataset looks like to its owner root")
    assert len(tokens_of(dataset)) == 1
    assert list((tmp_path / "work" / "cache").glob("tokens-*/kind.npy"))


def test_empty_dataset(tmp_path):
    assert len(tokens_of(Dataset.create(tmp_path / "d"))) == 0
    assert flat_features(Dataset.open(tmp_path / "d")).shape[0] == 0


def test_flat_features_tell_programs_apart_and_name_their_columns(tmp_path):
    dataset = dataset_of(tmp_path / "d", [trace(unroll=i) for i in range(4)] + [trace(tile=(8, 8, 1, 1))])
    flat = flat_features(dataset, tasks=False)
    assert flat.shape == (5, len(FLAT_FEATURES)) and len(np.unique(flat, axis=0)) == 5
    column = FLAT_FEATURES.index("value_pragma_unroll_0")
    assert sorted(flat[:4, column].round(1).tolist()) == [0, pytest.approx(4.1), 6, 9]
    assert flat_features(dataset).shape[1] > flat.shape[1] and np.isfinite(flat_of(tokens_of(dataset))).all()


def test_traces_without_decisions():
    """Elementwise tasks have design spaces with nothing to decide."""
    inline, annotate = '["ComputeInline",["b0"],[],[]]', '["Annotate",["b0",32],["meta_schedule.parallel"],[]]'
    text = f'[[["GetSBlock",[],["add","main"],["b0"]],{inline},{annotate}],[]]'
    tokens = tokenize([text, text], ["metaschedule"] * 2)
    assert tokens.length.tolist() == [2, 2]
    assert (tokens.kind[0] == tokens.kind[1]).all() and tokens.kind[0, :2].all()
