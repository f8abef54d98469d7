"""docs/notebooks/first-look.ipynb: run by nbclient without a network, and line by line where only the wheel is installed.

``PAGELAB_BLESS=1`` writes its outputs anew.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Kinds of output that the notebook keeps; bars of progress are another.
KEPT = ("stream", "execute_result")
NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "first-look.ipynb"

#: Reads a notebook, runs it, and writes it with what it printed.
EXECUTE = """
import sys, nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], 4)
# Over sockets of the file system: there is no other network.
manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip="kernel")
NotebookClient(notebook, timeout=600, km=manager, resources={"metadata": {"path": "."}}).execute()
nbformat.write(notebook, sys.argv[2])
"""


def isolated(command):
    """The command in a network namespace of its own, where not even the loopback device is up, if that may be made."""
    alone = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") and subprocess.run([*alone, "true"], capture_output=True).returncode == 0:
        return [*alone, *command]
    return command


def printed(notebook):
    """Text outputs of each cell."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [[text(output) for output in cell["outputs"] if output["output_type"] in KEPT] for cell in cells]


def text(output):
    lines = output.get("text", output.get("data", {}).get("text/plain"))
    return "".join(lines)


def test_the_notebook_runs_without_a_network_and_prints_what_it_shows(here):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    ended = subprocess.run(
        isolated([sys.executable, "-c", EXECUTE, NOTEBOOK, "executed.ipynb"]),
        capture_output=True,
        text=True,
        env={**os.environ, "JUPYTER_RUNTIME_DIR": str(here), "IPYTHONDIR": str(here)},
    )
    assert ended.returncode == 0, ended.stderr
    executed = json.loads((here / "executed.ipynb").read_text())
    kept = json.loads(NOTEBOOK.read_text())
    if os.environ.get("PAGELAB_BLESS") == "1":
        for mine, found in zip(kept["cells"], executed["cells"], strict=True):
            if mine["cell_type"] == "code":
                mine["outputs"] = [output for output in found["outputs"] if output["output_type"] in KEPT]
                mine["execution_count"] = found["execution_count"]
        NOTEBOOK.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    found = printed(executed)
    assert all(found), "every cell prints something"
    bars = [output for output in executed["cells"][1]["outputs"] if output["output_type"] == "display_data"]
    assert len(bars) == 1, "one bar, whatever it says in the end"
    assert found == printed(kept), "PAGELAB_BLESS=1 writes the outputs anew"


def test_the_wheel_alone_is_enough(here):
    """An empty environment with the wheel and its dependency: the cells of the notebook, one after the other."""
    wheels = os.environ.get("PAGELAB_WHEELS")
    if not wheels:
        pytest.skip("PAGELAB_WHEELS names no folder with the wheel and that of nanoarrow; `cargo xtask test` does")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "empty"], check=True)
    python = here / "empty" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--find-links", wheels, "pagelab"], check=True)
    cells = (cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code")
    (here / "cells.py").write_text("\n\n".join("".join(cell["source"]) for cell in cells))
    # Without the variables of this environment, and with nothing of it on PATH.
    clean = {"PATH": "/usr/bin:/bin", "HOME": str(here)}
    ended = subprocess.run(isolated([python, "cells.py"]), capture_output=True, text=True, env=clean)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    assert './mine.toml 5 rules' in ended.stdout
    program = subprocess.run([here / "empty" / "bin" / "pagelab", "--version"], capture_output=True, text=True, env=clean)
    assert program.stdout.startswith("pagelab ")
