"""Bad input: an exception with the program's message, and nothing half-written."""

import re
import shutil

import pagelab
import pytest
from conftest import SMALL
from pagelab._errors import of_status


@pytest.fixture
def copy(small, here):
    return shutil.copytree(small.path, here / "copy")


def edit(result, line, old, new):
    file = result / "result.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    file.write_text("".join(lines))


def test_a_file_a_line_and_a_key_are_named(here):
    (here / "my.toml").write_text('about = "mine"\nparent = "v6.1"\n[rules]\nfoo = 1\n')
    with pytest.raises(pagelab.UsageError, match='unknown rule "foo"') as caught:
        pagelab.run("fault-storm", **{**SMALL, "variant": "./my.toml"}, out="result")
    error = caught.value
    assert (error.file, error.line, error.key, error.status) == ("./my.toml", 4, "rules", 2)
    assert not (here / "result").exists()


@pytest.mark.parametrize(
    ("more", "says", "key"),
    [
        ({"machine": "nosuch"}, 'unknown machine "nosuch"', None),
        ({"set": {"foo": 1}}, 'unknown parameter "foo"', "--set"),
        ({"set": {"size": "9999GiB"}}, "expected a multiple of 2MiB", "size"),
        ({"seeds": "x"}, "invalid value 'x'", "--seeds"),
        ({"options": ["--nosuch"]}, "unexpected argument '--nosuch'", "--nosuch"),
        ({"options": ["--quiet"]}, "--quiet", "--progress"),
    ],
)
def test_wrong_arguments_are_refused(here, more, says, key):
    with pytest.raises(pagelab.UsageError, match=re.escape(says)) as caught:
        pagelab.run("fault-storm", out="result", **{**SMALL, **more})
    assert caught.value.key == key
    assert list(here.iterdir()) == []


def test_an_unwritable_place_is_refused(here):
    with pytest.raises(pagelab.PagelabError, match="cannot create"):
        pagelab.run("fault-storm", out="/proc/nowhere", **SMALL)


def test_no_result_and_foreign_files_are_refused(here):
    with pytest.raises(pagelab.UsageError, match="nosuch is not a result directory"):
        pagelab.load("nosuch")
    foreign = here / "foreign"
    foreign.mkdir()
    (foreign / "run.json").write_text("[]")
    with pytest.raises(pagelab.UsageError) as caught:
        pagelab.load(foreign)
    assert caught.value.file == str(foreign / "run.json")


def test_another_version_of_the_schema_is_refused(copy):
    edit(copy, 2, '"schema":5', '"schema":9')
    with pytest.raises(pagelab.UsageError, match="expected schema 1 to 5, found 9") as caught:
        pagelab.load(copy)
    assert (caught.value.file, caught.value.line) == (str(copy / "result.jsonl"), 2)
    with pytest.raises(pagelab.UsageError, match="expected schema"):
        pagelab.compare(copy)


def test_a_line_that_is_no_record_is_refused(copy):
    edit(copy, 3, '{"record"', '{"recrod"')
    with pytest.raises(pagelab.UsageError, match="not a result record") as caught:
        pagelab.load(copy)
    assert caught.value.line == 3


def test_of_a_truncated_result_the_whole_cells_are_there(copy):
    file = copy / "result.jsonl"
    file.write_bytes(file.read_bytes()[:-100])
    result = pagelab.load(copy)
    assert (len(result.cells), result.missing) == (7, 1)
    assert "missing=1" in repr(result)


def test_what_was_not_sampled_has_no_series(here):
    result = pagelab.run("fault-storm", out="result", progress=False, **{**SMALL, "sample": None, "variant": "v6.1"})
    with pytest.raises(pagelab.UsageError, match="nothing in result was sampled"):
        _ = result.series
    with pytest.raises(pagelab.UsageError, match="nothing is compared|nothing in common|no row|one column"):
        pagelab.compare(result)


def test_a_missing_program_is_told_with_what_to_do(monkeypatch, here):
    monkeypatch.setenv("PAGELAB_PROGRAM", str(here / "nosuch"))
    with pytest.raises(pagelab.ProgramMissing, match="which is no program"):
        pagelab.load("x")
    monkeypatch.delenv("PAGELAB_PROGRAM")
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.setattr("sysconfig.get_path", lambda *_, **__: str(here))
    monkeypatch.setattr("pagelab._command.__file__", str(here / "pagelab" / "_command.py"))
    with pytest.raises(pagelab.ProgramMissing, match="pip install --force-reinstall pagelab"):
        pagelab.load("x")


def test_a_program_of_another_release_is_refused(monkeypatch, here, small):
    other = here / "other"
    other.write_text('#!/bin/sh\necho \'{"columns": 99, "tables": []}\'\n')
    other.chmod(0o755)
    monkeypatch.setenv("PAGELAB_PROGRAM", str(other))
    with pytest.raises(pagelab.ProgramMissing, match="columns of version 99"):
        pagelab.load(small)


def test_how_it_ended_chooses_the_exception():
    assert isinstance(of_status("pagelab: x\n", 2), pagelab.UsageError)
    assert isinstance(of_status("pagelab: interrupted\n", 130), KeyboardInterrupt)
    died = of_status("", -9)
    assert (str(died), died.status) == ("pagelab was ended by signal 9", -9)
    assert str(of_status("error: a\n\nFor more\n", 2)).startswith("a")
