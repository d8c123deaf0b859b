"""Registering, and finding and loading plug-ins: names, laziness, and one line for everything that is wrong."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import types

import pytest

from xalign_models import plugins, register
from xalign_models.errors import AlignmentError, DataError, PluginError
from xalign_models.plugins import loading
from xalign_models.plugins.registry import Registry

pytestmark = pytest.mark.usefixtures("apart")


@pytest.fixture
def things():
    return Registry("thing", DataError, "xalign things", r"[a-z]+", "of lower-case letters")


def test_things_come_in_order_and_by_their_places_when_they_are_first_used(things):
    things.register("zeta", 1, size=3)
    things.register("alpha", "fractions:Fraction")
    assert list(things) == ["zeta", "alpha"]
    assert (len(things), "zeta" in things, "beta" in things) == (2, True, False)
    assert (things["zeta"], things["alpha"].__name__) == (1, "Fraction")
    assert things.facts("zeta") == {"size": 3}
    things.register("wrong", "fractions:Nothing")
    assert "wrong" in things
    with pytest.raises(PluginError, match="fractions:Nothing cannot be imported"):
        things["wrong"]


def test_a_value_that_depends_on_the_environment_disappears_with_its_cause(things):
    named = ["alpha"]
    things.register("zeta", 1)
    things.before_look(lambda: [things.register(name, 2) for name in named])
    assert list(things) == list(things) == ["zeta", "alpha"]
    named[:] = ["beta"]
    assert (list(things), things["beta"], "alpha" in things) == (["zeta", "beta"], 2, False)
    things.register("alpha", 3)
    assert list(things) == ["zeta", "alpha", "beta"]


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("Upper", 1, "its name must be of lower-case letters"),
        ("", 1, "its name must be"),
        (None, 1, "its name must be"),
        ("taken", 2, "the name is taken already; choose another"),
        ("place", "no place", 'not of the form "module:attr"'),
    ],
)
def test_bad_and_doubled_names_are_refused_with_the_reason(things, name, value, why):
    things.register("taken", 1)
    with pytest.raises(PluginError, match=why):
        things.register(name, value)


def test_an_unknown_name_is_told_the_nearest_and_the_list(things):
    things.register("whitening", 1)
    with pytest.raises(DataError, match=r"Unknown thing 'Witening'\. Did you mean whitening\? `xalign things` lists"):
        things.get("Witening")
    with pytest.raises(AlignmentError, match="Unknown alignment 'lzar'. Did you mean lsar.* Choose from "):
        plugins.ALIGNMENTS["lzar"]


class WithoutModule(plugins.ALIGNMENTS["centered"]):
    """Its encoder would apply an affine map."""

    method = "without-module"

    @staticmethod
    def apply(x, **_):
        """Not affine."""
        return abs(x)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: register.alignment(object), "must be a class with a `method`"),
        (lambda: register.alignment(type("Other", (plugins.ALIGNMENTS["lsar"],), {})), "the name is taken already"),
        (lambda: register.alignment(WithoutModule), "overrides `apply`, so it needs a `module`"),
        (lambda: register.task(object), "must be an mteb task with `metadata`"),
        (lambda: register.backbone("a__b", "org/name"), "single '_'"),
        (lambda: register.corpus("lingua")(print), "already"),
        (lambda: register.corpus("x", kind="odd")(print), "kind 'odd' is not monolingual, parallel or pairs"),
        (lambda: register.analysis("scatter", "Mine.")(print), "the name is taken already"),
        (lambda: register.benchmark("XAlign(LiRA)", ["Tatoeba36"]), "already"),
    ],
)
def test_what_cannot_be_registered(wrong, why):
    with pytest.raises(PluginError, match=why):
        wrong()


def test_the_same_again_is_no_second_registration():
    for _ in range(2):  # as when a notebook's cell runs again
        register.backbone("again", "org/name", layer=3)
        register.source("again", "package.module:Source")
        register.task("package.module:Task", "Again", score="accuracy")
        register.benchmark("Again(all)", ["Again"])
    assert [*plugins.BACKBONES].count("again") == 1
    with pytest.raises(PluginError, match="backbone 'again' cannot be registered: the name is taken already; choose"):
        register.backbone("again", "org/other")


def test_the_plug_in_that_has_a_name_is_named(tmp_path):
    (tmp_path / "owner.py").write_text(PLUGIN.format(name="owned"))
    plugins.load_plugins([str(tmp_path / "owner.py")])
    with pytest.raises(PluginError, match=r"the name is taken already, from owner\.py; choose another"):
        register.backbone("owned", "org/other")


def test_a_registered_backbone_is_a_model_with_every_alignment():
    from xalign_models.models import catalogue

    before = len(catalogue.specs())
    register.backbone("mine", "org/name", layer=3)
    names = set(catalogue.specs())
    assert {"xalign/plain__mine", "xalign/lsar__mine", "xalign/centered__mine__gettext"} <= names
    assert len(names) - before == 1 + sum(map(len, catalogue.fits().values()))


PLUGIN = """
from xalign_models import register

register.backbone({name!r}, "org/name")
"""


def test_a_file_is_loaded_once_and_named_to_other_processes(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN.format(name="mine"))
    plugins.add_plugin(str(file))
    plugins.add_plugin(str(file))
    assert "mine" in plugins.BACKBONES
    assert os.environ[loading.VARIABLE] == str(file)
    assert str(file) in plugins.sources()
    assert sys.modules["xalign_plugins.mine"].__file__ == str(file)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.py").write_text("")
    with pytest.raises(PluginError, match="the plug-in .*mine.py has the same name"):
        plugins.load_plugins([str(tmp_path / "other" / "mine.py")])
    with pytest.raises(PluginError, match="a,b.py: a comma separates plug-ins in XALIGN_PLUGINS"):
        plugins.add_plugin(str(tmp_path / "a,b.py"))
    assert os.environ[loading.VARIABLE] == str(file)


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("nowhere.py", None, "the file does not exist"),
        ("my-file.py", "", "'my-file' is not a valid module name"),
        ("broken.py", "1 +", "cannot be loaded: SyntaxError"),
        ("raises.py", "raise ValueError('two\\nlines')", "cannot be loaded: ValueError: two lines"),
        ("leaves.py", "import sys; sys.exit(1)", r"called sys\.exit\(1\)"),
        ("leaves_well.py", "raise SystemExit", r"called sys\.exit\(None\)"),
        ("doubled.py", PLUGIN.format(name="LaBSE"), "backbone 'LaBSE' cannot be registered"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line(tmp_path, file, content, why):
    if content is not None:
        (tmp_path / file).write_text(content)
    with pytest.raises(PluginError, match=f"Plug-in .*{file}:? .*{why}") as caught:
        plugins.load_plugins([str(tmp_path / file)])
    assert "\n" not in str(caught.value)
    assert f"xalign_plugins.{file.removesuffix('.py')}" not in sys.modules


@pytest.mark.parametrize("name", ["half_done.py", "package_half_done"])
def test_a_plug_in_that_fails_leaves_nothing_and_can_be_loaded_once_it_is_mended(tmp_path, monkeypatch, name):
    monkeypatch.syspath_prepend(str(tmp_path))
    inner = tmp_path / name if name.endswith(".py") else tmp_path / name / "__init__.py"
    inner.parent.mkdir(exist_ok=True)
    first = "its_first_half" if name.endswith(".py") else f"{name}.first"
    (inner.parent / f"{first.rpartition('.')[2]}.py").write_text(PLUGIN.format(name="first"))
    source = str(inner) if name.endswith(".py") else name
    content = f"import {first}\n{PLUGIN.format(name='second')}"
    before = list(plugins.BACKBONES)
    inner.write_text(f"{content}\nraise ValueError('not done')\n")
    with pytest.raises(PluginError, match="not done"):
        plugins.add_plugin(source)
    assert list(plugins.BACKBONES) == before
    assert (os.environ[loading.VARIABLE], source in plugins.sources()) == ("", False)
    inner.write_text(content)
    plugins.add_plugin(source)
    assert list(plugins.BACKBONES) == [*before, "first", "second"]
    assert os.environ[loading.VARIABLE] == source


def test_a_failed_plug_in_of_a_package_in_use_registers_all_of_itself_later(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "package_in_use"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text(PLUGIN.format(name="helped"))
    (package / "plug.py").write_text("from package_in_use import helper\nraise ValueError('not done')\n")
    importlib.import_module("package_in_use")
    with pytest.raises(PluginError, match="not done"):
        plugins.add_plugin("package_in_use.plug")
    assert "helped" not in plugins.BACKBONES
    (package / "plug.py").write_text("from package_in_use import helper\n")
    plugins.add_plugin("package_in_use.plug")
    assert "helped" in plugins.BACKBONES


def test_a_module_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setenv(loading.VARIABLE, "no_such_module")
    with pytest.raises(PluginError, match=r"No module named 'no_such_module'\. Name a file that ends in \.py"):
        plugins.load_plugins()


def test_other_code_under_the_same_name_is_another_fit(tmp_path):
    assert plugins.code_digest(plugins.ALIGNMENTS["lsar"]) == ""
    digests = []
    for folder, comment in (("one", ""), ("two", "# changed\n")):
        file = tmp_path / folder / "method.py"
        file.parent.mkdir()
        file.write_text(f"{comment}class Method:\n    pass\n")
        sys.modules.pop("xalign_plugins.method", None)
        plugins.load_plugins([str(file)])
        digests.append(plugins.code_digest(sys.modules["xalign_plugins.method"].Method))
    assert len({*digests, ""}) == 3


def test_a_changed_neighbour_of_a_plug_in_is_another_fit(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "method_of_two_files.py").write_text(
        "from its_neighbour import K\nimport its_neighbour\nclass M: pass\n"
    )
    digests = []
    for constant in (1, 2):
        (tmp_path / "its_neighbour.py").write_text(f"K = {constant}\n")
        for name in ("its_neighbour", "method_of_two_files"):
            sys.modules.pop(name, None)
        digests.append(plugins.code_digest(importlib.import_module("method_of_two_files").M))
    assert len({*digests}) == 2


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("from ..constants import K", "constants"),  # a number has no module of its own
        ("from ..constants import *", "constants"),
        ("from .. import constants", "constants"),
        ("from {package} import constants", "constants"),
        ("from {package} import K", "__init__"),
        ("import {package}.constants", "constants"),
        ("from .further import FURTHER", "constants"),
        ("def later():\n    from .. import constants", "constants"),
    ],
)
def test_what_a_plug_in_imports_from_its_package_is_its_code(tmp_path, monkeypatch, statement, changed):
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = []
    package = tmp_path / "package_of_a_method"
    (package / "methods").mkdir(parents=True)
    statement = statement.format(package=package.name)
    (package / "methods" / "__init__.py").touch()
    (package / "methods" / "further.py").write_text(f"from {package.name}.constants import K as FURTHER\n")
    (package / "methods" / "method.py").write_text(f"{statement}\nclass M: pass\n")
    for value in (1, 1, 2):
        for name in ("__init__", "constants"):
            (package / f"{name}.py").write_text(f"K = {value if name == changed else 1}\n")
        for name in [name for name in sys.modules if name.startswith(package.name)]:
            del sys.modules[name]
        module = importlib.import_module(f"{package.name}.methods.method")
        digests.append(plugins.code_digest(module.M))
        getattr(module, "later", dict)()  # what it imports now is no other code
        assert plugins.code_digest(module.M) == digests[-1]
    assert digests[0] == digests[1] != digests[2]


def test_an_environment_in_a_plug_ins_folder_is_not_its_code(tmp_path, monkeypatch):
    packages = tmp_path / "venv" / "lib"
    packages.mkdir(parents=True)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"purelib": str(packages)})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(packages))
    (tmp_path / "method_beside_an_environment.py").write_text("import its_installed_package\nclass M: pass\n")
    digests = []
    for constant in (1, 2):
        (packages / "its_installed_package.py").write_text(f"K = {constant}\n")
        for name in ("its_installed_package", "method_beside_an_environment"):
            sys.modules.pop(name, None)
        digests.append(plugins.code_digest(importlib.import_module("method_beside_an_environment").M))
    assert digests[0] == digests[1]


def test_an_edited_cell_of_a_notebook_is_another_fit_and_replaces_the_first(things, monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)  # a notebook has none, `python -m` has
    digests = []
    for constant in (1, 1, 2):
        cell: dict = {"__name__": "__main__"}
        exec(f"class Method:\n    def fit(self, x):\n        return x + {constant}\n", cell)
        things.register("method", cell["Method"])
        assert things["method"] is cell["Method"]
        digests.append(plugins.code_digest(cell["Method"]))
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("package", ["tasks", "xalign_models_x", "xalign_tasks", "xalign_models"])
def test_code_outside_our_folders_is_a_plug_in_whatever_its_package_is_called(package, tmp_path, monkeypatch):
    file = tmp_path / package / "method.py"
    file.parent.mkdir()
    file.write_text("class Method:\n    pass\n")
    spec = importlib.util.spec_from_file_location(f"{package}.method", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert plugins.code_digest(module.Method) == hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("file", ["", "<stdin>"])
def test_a_class_without_a_file_is_a_plug_in_whose_code_does_not_depend_on_the_session(file, monkeypatch):
    module = types.ModuleType("typed_in")
    module.__file__ = file
    monkeypatch.setitem(sys.modules, "typed_in", module)

    def digest(*words):
        members = {"__module__": "typed_in", "words": (set(words), frozenset(words)), "part": (object(),)}
        return plugins.code_digest(type("Method", (), members))

    assert list({0, 8}) != list({8, 0})
    assert digest(0, 8) == digest(8, 0) != digest(0, 9)


@pytest.fixture
def look(tmp_path):
    """Look up a task in a process whose current folder is ``tmp_path``, after running ``before``."""

    def run(before: str = "", after: str = "") -> subprocess.CompletedProcess[str]:
        code = f"import sys\n{before}\nfrom xalign_models import plugins\n{after}\nprint('Tatoeba36' in plugins.TASKS)"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), loading.VARIABLE: ""}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
        )

    return run


def describe(folder, name, module):
    """Write a distribution's metadata, with an entry point called like ours."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{loading.GROUP}]\nxalign_tasks = {module}\n")


def install(folder, name, package, content):
    """Install a distribution with a plug-in ``package.things``, whose entry point is called like ours."""
    describe(folder, name, f"{package}.things")
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    (folder / package / "things.py").write_text(content)


def test_a_built_in_plug_in_that_cannot_load_is_an_error_with_the_cause(look):
    done = look("sys.modules['xalign_tasks.lusifer_benchmark'] = None")
    assert done.returncode == 1
    assert "PluginError: xalign_tasks.registration, a part of xalign, cannot be loaded: " in done.stderr
    assert "ModuleNotFoundError: import of xalign_tasks.lusifer_benchmark halted" in done.stderr
    again = """
for _ in range(2):
    try:
        len(plugins.TASKS)
    except plugins.loading.PluginError as error:
        print(error)
"""
    first, second = look("sys.modules['xalign_tasks.lusifer_benchmark'] = None", again).stdout.splitlines()
    assert first == second


def test_a_folder_with_the_name_of_our_package_is_refused_and_not_run(look, tmp_path):
    (tmp_path / "xalign_tasks").mkdir()
    for name in ("__init__", "registration"):
        (tmp_path / "xalign_tasks" / f"{name}.py").write_text("open('ran', 'w')\n")
    done = look()
    assert done.returncode == 1
    assert f"{tmp_path}/xalign_tasks hides xalign's own package xalign_tasks; rename or remove it." in done.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_clone_beside_an_installation_takes_the_installed_tasks(look, tmp_path):
    """As for ``python -m pytest`` in a clone whose wheel is installed: the working folder holds one package alone."""
    for package, folder in (("xalign_models", "clone"), ("xalign_tasks", "installed")):
        (source,) = importlib.util.find_spec(package).submodule_search_locations
        shutil.copytree(source, tmp_path / folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    describe(tmp_path / "installed", "xalign", "xalign_tasks.registration")
    folders = [str(tmp_path / "clone"), str(tmp_path / "installed")]
    done = look(f"sys.path[:0] = {folders}", PLACES)
    assert done.stdout.splitlines() == [*folders, "'' True", "True"], done.stderr


PLACES = """
import xalign_models, xalign_tasks
for package in xalign_models, xalign_tasks:
    print(plugins.loading.Path(package.__file__).parents[1])
print(repr(plugins.code_digest(plugins.TASKS['Tatoeba36'])), 'lsar' in plugins.ALIGNMENTS)
"""


def test_another_plug_in_that_cannot_load_is_a_warning_even_under_the_name_of_ours(look, tmp_path):
    install(tmp_path, "other", "tasks", "raise ValueError('broken')\n")
    done = look()
    assert done.stdout == "True\n", done.stderr
    assert done.stderr == "Plug-in xalign_tasks (tasks.things) is left out: broken\n"


def test_an_installed_plug_in_that_exits_is_a_warning(look, tmp_path):
    install(tmp_path, "other", "tasks", "import sys\nsys.exit(1)\n")
    done = look()
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "is left out: The code called sys.exit(1)." in done.stderr


def test_what_tells_a_process_to_end_ends_a_plug_in_too(tmp_path):
    (tmp_path / "told.py").write_text("from xalign_models.errors import Terminated\nraise Terminated(143)")
    with pytest.raises(SystemExit, match="143"):
        plugins.load_plugins([str(tmp_path / "told.py")])


def test_a_plug_in_in_a_package_called_tasks_is_not_ours(look, tmp_path):
    content = "from xalign_models import register\nregister.backbone('mine', 'organisation/model')\n"
    install(tmp_path, "other", "tasks", content)
    done = look(after="print(list(plugins.BACKBONES)[-1])")
    assert done.stdout.splitlines() == ["mine", "True"], done.stderr


@pytest.mark.parametrize("command", ["tasks", "analyse", "corpora", "models", "run -t Florss", "run -m lzar__LaBSE"])
def test_lists_and_wrong_names_import_neither_mteb_nor_torch(command, tmp_path):
    code = "import sys\nfrom xalign_models.cli import main\nimport atexit\n"
    code += (
        "atexit.register(lambda: print([name for name in ('mteb', 'torch', 'transformers') if name in sys.modules]))\n"
    )
    environment = {**os.environ, "XALIGN_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}sys.argv = ['xalign', *{command.split()}]\nmain()"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert (done.returncode, len(done.stderr.splitlines())) == ((2, 1) if "run" in command else (0, 0))
    if "run" not in command:
        assert len(done.stdout.splitlines()) > 8
        assert "\t" in done.stdout
