"""Backends by name: only the named one is imported, and a refusal says what to do."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import beamsieve as bs
from beamsieve import registry
from beamsieve.interface import Backend
from beamsieve.registry import BackendSpec, list_backends, open_backend


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Add entry points that name modules written by the test."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(name: str, source: str, attribute: str = "Plugin") -> None:
        (tmp_path / f"plugin_{name}.py").write_text(source)
        point = EntryPoint(name, f"plugin_{name}:{attribute}", registry.GROUP)
        before = registry.installed()
        monkeypatch.setattr(registry, "installed", lambda: {**before, name: point})

    return add


@pytest.mark.parametrize(
    ("text", "name", "device", "options"),
    [
        ("torch", "torch", None, {}),
        ("torch:cpu", "torch", "cpu", {}),
        ("torch:cuda:1", "torch", "cuda:1", {}),
        ("torch?tile=8", "torch", None, {"tile": "8"}),
        ("torch:cpu?tile=8&gemm=blas", "torch", "cpu", {"tile": "8", "gemm": "blas"}),
        (" torch:cpu ", "torch", "cpu", {}),
    ],
)
def test_a_config_string_is_name_device_and_options(text, name, device, options):
    spec = BackendSpec.parse(text)
    assert (spec.name, spec.device, spec.options) == (name, device, options)
    assert BackendSpec.parse(str(spec)) == spec


@pytest.mark.parametrize("text", ["", ":cpu", "torch?tile", "torch?tile=1&tile=2", "torch?=&"])
def test_a_config_string_that_cannot_be_read_shows_the_form(text):
    with pytest.raises(bs.BackendError, match=r"name\[:device\]"):
        BackendSpec.parse(text)


def test_an_unknown_name_is_refused_with_what_is_installed_and_the_nearest_name():
    with pytest.raises(bs.BackendError) as refused:
        open_backend("torhc:cpu")
    text = str(refused.value)
    assert "'torhc' is not installed" in text
    assert "Did you mean 'torch'" in text
    assert "reference, torch" in text
    assert "pip install" in text


def test_only_the_named_backend_is_imported():
    code = (
        "import sys, beamsieve as bs\n"
        "bs.registry.open_backend('reference')\n"
        "print(sorted({'torch', 'triton', 'cupy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_listing_backends_imports_none():
    code = (
        "import sys, beamsieve as bs\n"
        "names = [info.name for info in bs.list_backends()]\n"
        "assert 'torch' in names and 'reference' in names, names\n"
        "print(sorted(m for m in sys.modules if m.startswith(('torch', 'beamsieve_backends'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_a_failing_import_shows_its_own_error_and_a_pip_line(plugins):
    plugins("needy", "import no_such_array_library")
    with pytest.raises(bs.BackendError) as refused:
        open_backend("needy")
    text = str(refused.value)
    assert "No module named 'no_such_array_library'" in text
    assert "pip install no_such_array_library" in text


DECLARES = """
{imports}
from beamsieve_backends.reference import ReferenceBackend
class Plugin(ReferenceBackend):
    requires = "pip install driver-of-mine"
    def __init__(self, *given): {opens}
"""


@pytest.mark.parametrize(
    ("imports", "opens"),
    [
        ("import driver_of_mine", "pass"),
        ("import sys; sys.exit('no driver')", "pass"),
        ("", "import driver_of_mine"),
        ("", "raise OSError('no driver')"),
    ],
)
def test_what_a_backend_says_it_requires_is_shown_where_it_fails(plugins, imports, opens):
    plugins("needy", DECLARES.format(imports=imports, opens=opens))
    with pytest.raises(bs.BackendError, match=r"with: pip install driver-of-mine$"):
        open_backend("needy")
    found = {info.name: info for info in list_backends(check=True)}
    assert found["needy"].install == "pip install driver-of-mine"


def test_of_an_unfinished_backend_nothing_is_to_be_installed(plugins):
    plugins(
        "begun",
        "from beamsieve.interface import Backend\n"
        "class Plugin(Backend):\n"
        "    requires = 'pip install driver-of-mine'\n",
    )
    with pytest.raises(bs.BackendError, match="abstract class") as refused:
        open_backend("begun")
    assert "Install" not in str(refused.value)


def test_torch_offers_the_devices_that_it_has():
    torch = pytest.importorskip("torch", reason="the torch backend needs PyTorch")
    devices = {info.name: info for info in list_backends(check=True)}["torch"].devices
    assert ("cuda" in devices) == torch.cuda.is_available()


@pytest.mark.parametrize("there", [True, False])
def test_a_projection_that_another_package_would_bring_is_said(monkeypatch, there):
    module = pytest.importorskip(
        "beamsieve_backends.torch_dense.backend", reason="the torch backend needs PyTorch"
    )
    monkeypatch.setattr(module, "has_numba", lambda: there)
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: False)
    found = {info.name: info for info in list_backends(check=True)}["torch"]
    assert ("compiled" in found.projections) is there
    assert found.missing == ({} if there else {"compiled": "pip install 'beamsieve[compiled]'"})


def test_a_broken_backend_hides_no_other(plugins):
    plugins("broken", "raise RuntimeError('driver is asleep')")
    found = {info.name: info for info in list_backends(check=True)}
    assert "driver is asleep" in found["broken"].error
    assert found["reference"].error == ""
    assert found["reference"].devices == ("cpu",)


@pytest.mark.parametrize(
    "source",
    [
        "raise SystemExit('no driver')",
        "raise BaseException('no driver')",
        "raise ImportError('no\\n  driver\\n')",
        "import sys\nclass Half: pass\nsys.exit('no driver')",
        "from beamsieve_backends.reference import ReferenceBackend\n"
        "class Plugin(ReferenceBackend):\n"
        "    def __init__(self, *given): raise SystemExit('no\\ndriver')",
        "from beamsieve_backends.reference import ReferenceBackend\n"
        "class Plugin(ReferenceBackend):\n"
        "    @property\n"
        "    def capabilities(self): raise SystemExit('no\\ndriver')",
    ],
)
def test_a_backend_that_ends_the_program_is_shown_in_one_line(plugins, source):
    plugins("quitter", source)
    found = {info.name: info for info in list_backends(check=True)}
    assert "no driver" in found["quitter"].error
    assert "\n" not in found["quitter"].error
    assert found["reference"].error == ""


@pytest.mark.parametrize(
    "failure",
    ["SystemExit('no\\ndriver')", "OSError('no\\ndriver')", "BaseException('no\\ndriver')"],
)
def test_a_backend_that_fails_as_it_opens_is_refused_in_one_line(plugins, failure):
    plugins(
        "quitter",
        "from beamsieve_backends.reference import ReferenceBackend\n"
        "class Plugin(ReferenceBackend):\n"
        f"    def __init__(self, *given): raise {failure}",
    )
    with pytest.raises(bs.BackendError, match=r"cannot be opened: \w+: no driver\.$"):
        open_backend("quitter")


def test_an_entry_point_that_is_no_backend_is_refused(plugins):
    plugins("odd", "class Plugin: pass")
    with pytest.raises(bs.BackendError, match="no subclass of"):
        open_backend("odd")


def test_the_environment_names_the_default(index, monkeypatch):
    monkeypatch.setenv("BEAMSIEVE_BACKEND", "reference")
    assert bs.Engine(index).backend == "reference:cpu"
    assert bs.Engine(index, backend="torch:cpu").backend == "torch:cpu"


def test_auto_says_what_it_took_and_why(index, monkeypatch, caplog):
    monkeypatch.delenv("BEAMSIEVE_BACKEND", raising=False)
    monkeypatch.setattr(registry, "PREFERENCE", ("torch", "reference"))
    with caplog.at_level(logging.INFO, logger="beamsieve"):
        engine = bs.Engine(index)
    assert engine.backend.startswith("torch:")
    assert f"took {engine.backend}" in caplog.text


def test_auto_passes_over_what_cannot_serve(plugins, monkeypatch, caplog):
    plugins("asleep", "raise ImportError('no driver')")
    monkeypatch.setattr(registry, "PREFERENCE", ("asleep", "torch", "reference"))
    with caplog.at_level(logging.DEBUG, logger="beamsieve"):
        backend, spec = open_backend(
            "auto", lambda opened: "it is busy." if opened.name == "torch" else None
        )
    assert isinstance(backend, Backend)
    assert spec.name == "reference"
    # What this machine lacks stands in ``beamsieve backends``, so a name does; what this index is
    # refused for stands nowhere else.
    (said,) = (record for record in caplog.records if record.levelno == logging.INFO)
    assert said.getMessage() == (
        "backend auto took reference:cpu; torch: it is busy; asleep cannot run here "
        "(`beamsieve backends` says why)"
    )
    (detail,) = (record for record in caplog.records if record.levelno == logging.DEBUG)
    assert "no driver" in detail.getMessage()


def test_auto_that_finds_nothing_gives_every_reason(monkeypatch):
    monkeypatch.setattr(registry, "PREFERENCE", ("reference", "torch"))
    with pytest.raises(bs.BackendError) as refused:
        open_backend("auto", refuse=lambda backend: f"{backend.name} is not wanted.")
    assert "reference is not wanted; " in str(refused.value)
    assert str(refused.value).endswith("torch is not wanted.")
    assert ".." not in str(refused.value)


def test_a_named_backend_never_falls_back():
    with pytest.raises(bs.BackendError, match="not wanted"):
        open_backend("torch:cpu", refuse=lambda backend: "not wanted")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("torch:tpu", "no device that PyTorch knows"),
        ("torch:meta", "runs on cpu and cuda"),
        ("torch:cpu:7", "There is no device 'cpu:7'"),
        ("torch:cuda:99", "There is no device 'cuda:99'"),
        ("torch:cpu?colour=red", "no option 'colour'"),
        ("torch:cpu?tile=3", "power of two"),
        ("torch:cpu?gemm=mine", '"onednn" or "blas"'),
        ("reference:cuda", "runs on cpu alone"),
        ("reference?x=1", "no option 'x'"),
    ],
)
def test_a_wrong_device_or_option_is_refused_at_once(config, says):
    with pytest.raises(bs.BackendError, match=says):
        open_backend(config)
