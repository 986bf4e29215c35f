"""The Lessons page without a browser: every lesson opens, asks, and answers from its data."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tcl.jobs.store import ALIVE, DONE, all_jobs
from tcl.lessons import LESSONS
from tests.jobs.conftest import until

APP = Path(__file__).parent.parent.parent / "app"


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    monkeypatch.delenv("TCL_APP_DATASETS", raising=False)


def opened(lesson: str) -> AppTest:
    at = AppTest.from_file(str(APP / "main.py"), default_timeout=90).run()
    at.query_params["lesson"] = lesson
    at.switch_page("app_pages/lessons.py").run()
    assert not at.exception and not at.error
    return at


def words(at: AppTest) -> str:
    return "\n".join(e.value for kind in (at.caption, at.markdown, at.subheader, at.info, at.success) for e in kind)


def press(at: AppTest, label: str) -> AppTest:
    next(b for b in at.button if label in b.label).click().run()
    assert not at.exception
    return at


def check_questions(at: AppTest, name: str, number: int, answers: list[str]) -> None:
    """The right option is told when asked for, and not before; choosing it is told to be right."""
    guesses = [r for r in at.radio if r.key and r.key.startswith(f"guess-{name}-")]
    assert len(guesses) == number and all(r.value is None for r in guesses)
    assert not at.success and not any("The answer is" in i.value for i in at.info)
    for i, answer in enumerate(answers):
        at.radio(key=f"guess-{name}-{i}").set_value(answer)
        at.toggle(key=f"answer-{name}-{i}").set_value(True)
    at.run()
    assert not at.exception and len(at.success) == len(answers)


def test_a_step_is_guessed_measured_and_read():
    from tcl.lessons import loops

    steps = loops.load()
    at = opened("loops")
    assert LESSONS["loops"].question in words(at) and "tcl bench steps" in at.code[-1].value
    assert "C[i, j] += A[i, k] * B[k, j]" in at.code[0].value
    check_questions(at, "loops", 4, [q.right for q in loops.questions(steps)])
    press(at, "Show what was measured")
    assert loops.guess(steps, 1).why in words(at)
    at.button_group(key="loops-guess-2").set_value(loops.guess(steps, 2).right)
    press(at, "Show what was measured")
    assert f"Yes. {loops.guess(steps, 2).why}" in words(at)
    press(at, "Show all")
    last = steps.rows.iloc[-1]
    assert f"**{last['step']}. {last['name']}**" in words(at) and "+ for i_0 in parallel(32):" in "\n".join(c.value for c in at.code)


def test_picks_are_compared_when_they_are_shown():
    from tcl.lessons import tenth

    at = opened("tenth")
    assert "0 of 10 picked" in words(at) and not at.dataframe and not at.radio
    press(at, "Draw mine by chance")
    assert "10 of 10 picked" in words(at)
    press(at, "Show RDU's picks")
    assert list(at.dataframe[0].value.index) == ["yours", "RDU", "by chance (median)"]
    one = tenth.load()
    check_questions(at, "tenth", 4, [q.right for q in tenth.questions(one, tenth.draws(one), tenth.curves()[0])])
    press(at, "Start again")
    assert "0 of 10 picked" in words(at) and not at.dataframe


def test_mistakes_start_with_the_worst_task():
    from tcl.lessons import mistakes

    models = mistakes.both()
    at = opened("mistakes")
    for name, found in models.items():
        at.button_group(key="mistakes-model").set_value(name)
        at.selectbox(key="mistakes-task").set_value(0).run()
        worst = found.assignments.iloc[0]
        assert f"measured rank **{worst['picked_rank']}** of {worst['programs']}" in words(at)
    asked = [*mistakes.questions(name, found), *mistakes.compared(models)]
    check_questions(at, f"mistakes-{name}", 5, [q.right for q in asked])
    at.selectbox(key="mistakes-task").set_value(len(found.assignments) - 1).run()
    best = found.assignments.iloc[-1]
    assert not at.exception and f"measured rank **{best['picked_rank']}** of {best['programs']}" in words(at)


def test_forgetting_stands_beside_protection():
    from tcl.lessons import forgetting

    runs = forgetting.load()
    at = opened("forgetting")
    assert all(f"{forgetting.change(files):+.3f} top-1" in words(at) for files in runs.values())
    check_questions(at, "forgetting", 4, [q.right for q in forgetting.questions(runs)])


def test_the_recorded_run_plays_as_a_job(monkeypatch):
    from app.lessons import tuning as page
    from tcl.lessons import tuning

    monkeypatch.setattr(page, "SPEEDS", {"half a minute": 1.0})
    at = opened("tuning")
    assert "no compiler or GPU" in words(at)
    press(at, "Play the recorded run")
    (job,) = all_jobs()
    assert job.kind == "replay"
    until(lambda: job.state not in ALIVE, 60)
    assert job.state == DONE and job.result["best_latency_s"] == tuning.load().result["best_latency_s"]
    at.run()
    assert not at.exception and "Measured" in [m.label for m in at.metric]
    check_questions(at, "tuning", 4, [q.right for q in tuning.questions(tuning.load())])


def test_lessons_follow_each_other():
    at = opened("loops")
    for lesson in list(LESSONS.values())[1:]:
        press(at, f"Next: {lesson.title}")
        assert lesson.question in words(at) and not at.error


@pytest.mark.browser
@pytest.mark.timeout(180)
def test_a_program_is_picked_by_clicking_it_and_taken_back(served, page):
    from playwright.sync_api import expect

    address, _, _ = served
    page.goto(f"{address}/lessons?lesson=tenth")
    page.wait_for_selector(".tcl-chart[data-drawn]")
    expect(page.get_by_text("0 of 10 picked")).to_be_visible()
    # Told by its place on the map and looked up before each move: the chart is drawn anew after every pick.
    where = """at => {
      const chart = document.querySelector(".js-plotly-plot"), area = chart.querySelector(".nsewdrag").getBoundingClientRect()
      const layout = chart._fullLayout, [x, y] = at || [chart._fullData[0].x[30], chart._fullData[0].y[30]]
      return {at: [x, y], press: [area.left + layout.xaxis.d2p(x), area.top + layout.yaxis.d2p(y)]}
    }"""
    program = page.evaluate(where)["at"]
    named = page.locator(".hovertext").filter(has_text="program number 30")
    for said in ("1 of 10 picked", "0 of 10 picked"):
        for _ in range(40):  # until the chart says that the mouse is over this very program
            x, y = page.evaluate(where, program)["press"]
            page.mouse.move(x - 40, y - 40)
            page.mouse.move(x, y, steps=3)
            page.wait_for_timeout(250)
            if named.count():
                break
        expect(named.first).to_be_visible()
        page.mouse.down()
        page.mouse.up()
        expect(page.get_by_text(said)).to_be_visible()
