"""The house rules, as far as a program can see them. Each message says what to do instead."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {
    "uv.lock",
    ".venv",
    ".git",
    ".gpuyard",
    ".gpuyard-demo",
    "__pycache__",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "node_modules",
    "build",
}
MAX_LINES = 400
MAX_BODY = 40
SERVICES = ("api", "scheduler", "placement", "monitor", "billing", "node-agent")
TEXT = {".py", ".md", ".toml", ".yaml", ".yml", ".sql", ".json", ".sh", ".c", ".cfg", ".ini", ".lock", ""}


def _files(suffixes: set[str]) -> list[Path]:
    found = []
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.is_dir() and not path.is_symlink():
                if path.name not in SKIPPED and not path.name.endswith(".egg-info"):
                    pending.append(path)
            elif path.is_file() and path.suffix in suffixes and path.name not in SKIPPED:
                found.append(path)
    return sorted(found)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


PYTHON = _files({".py"})
SOURCES = [
    path
    for path in PYTHON
    if path.is_relative_to(ROOT / "libs") or path.is_relative_to(ROOT / "services") or path.is_relative_to(ROOT / "deploy")
]
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in PYTHON}


def test_there_is_something_to_check() -> None:
    """The rules below would be silent if the walk found nothing."""
    assert len(SOURCES) > 50
    assert any(path.parts[-2] == "domain" for path in SOURCES)


def test_files_are_short() -> None:
    """A room that grows past 400 lines becomes a folder, split by decision."""
    long = [f"{_name(path)}: {count} lines" for path in PYTHON if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_LINES]
    assert not long, f"split these by decision: {long}"


def test_functions_are_short() -> None:
    """A body above 40 lines holds two thoughts."""
    long = [
        f"{_name(path)}:{node.lineno} {node.name}: {size}"
        for path in PYTHON
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (size := _body_lines(node)) > MAX_BODY
    ]
    assert not long, f"split these: {long}"


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
    return (node.end_lineno or node.lineno) - body[0].lineno + 1


def test_modules_say_what_they_are() -> None:
    """Every module opens with what it is; its promise and where to start reading follow."""
    silent = [_name(path) for path in PYTHON if ast.get_docstring(TREES[path]) is None and path.read_text(encoding="utf-8").strip()]
    assert not silent, f"add a module docstring: {silent}"


def test_public_functions_say_what_they_do() -> None:
    """Public functions and classes of libraries and services have a docstring."""
    silent = [
        f"{_name(path)}:{node.lineno} {node.name}" for path in SOURCES for node in _public(TREES[path]) if ast.get_docstring(node) is None
    ]
    assert not silent, f"say shapes, units and errors: {silent}"


def _public(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def test_no_module_is_a_drawer() -> None:
    """A module is named after its noun or its decision."""
    drawers = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert not [_name(path) for path in PYTHON if path.stem in drawers]


def test_services_have_the_same_rooms() -> None:
    """Who knows one service knows all."""
    rooms = ("__init__.py", "__main__.py", "app.py", "settings.py", "domain")
    with_database = ("handlers.py", "store.py", "migrations")
    missing = []
    for service in SERVICES:
        folder = ROOT / "services" / service / "src" / f"gpuyard_{service.replace('-', '_')}"
        wanted = rooms if service == "node-agent" else rooms + with_database
        missing += [_name(folder / room) for room in wanted if not _has(folder, room)]
        missing += [] if (ROOT / "services" / service / "README.md").is_file() else [f"services/{service}/README.md"]
        told = ast.get_docstring(TREES[folder / "__init__.py"]) or ""
        missing += [f"{service}: '{word}' in the package's docstring" for word in ("Owns", "Hears", "Says", "Never") if word not in told]
    assert not missing


def _has(folder: Path, room: str) -> bool:
    return (folder / room).exists() or (folder / room.removesuffix(".py") / "__init__.py").exists()


def _imports(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module.split(".")[0])
    return found


def test_domains_are_pure() -> None:
    """A domain knows no loop, clock, randomness, file or log: what it needs is handed to it."""
    banned = {
        "asyncio",
        "random",
        "secrets",
        "time",
        "logging",
        "structlog",
        "os",
        "socket",
        "subprocess",
        "threading",
        "asyncpg",
        "nats",
        "io",
        "pathlib",
    }
    found = [
        f"{_name(path)}: {', '.join(sorted(taken))}"
        for path in SOURCES
        if "domain" in path.parts and (taken := _imports(TREES[path]) & banned)
    ]
    assert not found, f"hand it in from a handler instead: {found}"


def test_no_decision_reads_the_clock() -> None:
    """``datetime.now`` and ``uuid4`` have no place in domains and handlers: the unit's instant and ids derived from causes do."""
    rooms = ("domain", "handlers", "ticks", "mapping", "store")
    found = []
    for path in SOURCES:
        if not any(room in path.parts or path.stem == room for room in rooms) or "services" not in path.parts:
            continue
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today", "uuid4", "monotonic"} and _is_clock(node):
                found.append(f"{_name(path)}:{node.lineno} {ast.unparse(node)}")
    assert not found, f"use tx.now and derived ids: {found}"


def _is_clock(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in {"datetime", "date", "time", "uuid"}


def test_money_and_capacity_are_no_floats() -> None:
    """No float literal and no ``float`` in the domains of billing, scheduler and placement."""
    found = []
    for path in SOURCES:
        if "domain" not in path.parts or not {"billing", "scheduler", "placement"} & set(path.parts):
            continue
        for node in ast.walk(TREES[path]):
            is_float = isinstance(node, ast.Constant) and isinstance(node.value, float)
            if is_float or (isinstance(node, ast.Name) and node.id == "float"):
                found.append(f"{_name(path)}:{node.lineno}")
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                found.append(f"{_name(path)}:{node.lineno} true division")
    assert not found, f"use integers in the unit that the name ends with: {found}"


def test_the_runtime_knows_no_domain_noun() -> None:
    """The mechanism serves any service: no job, tenant, invoice or GPU in it."""
    noun = re.compile(r"\b(jobs?|tenants?|invoices?|gpus?)\b", re.IGNORECASE)
    found = [
        f"{_name(path)}:{number}"
        for path in SOURCES
        if path.is_relative_to(ROOT / "libs/runtime")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if noun.search(line)
    ]
    assert not found


def test_sql_lives_in_stores() -> None:
    """All SQL of a service is in its store, its reads or its migrations."""
    statement = re.compile(r"\b(select\s.+\sfrom|insert\s+into|update\s+\w+\s+set|delete\s+from)\b", re.IGNORECASE | re.DOTALL)
    found = []
    for path in SOURCES:
        if not path.is_relative_to(ROOT / "services") or path.stem in {"store", "reads"} or {"store", "reads"} & set(path.parts):
            continue
        docs = {id(node.body[0].value) for node in ast.walk(TREES[path]) if _has_doc(node)}
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs and statement.search(node.value):
                found.append(f"{_name(path)}:{node.lineno}")
    assert not found, f"move it to store.py: {found}"


def _has_doc(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) and ast.get_docstring(node) is not None


def test_tests_do_not_sleep_for_luck() -> None:
    """A test waits for a condition, never for time: use the waiting functions of tests/support."""
    found = [
        f"{_name(path)}:{node.lineno}"
        for path in PYTHON
        if path.is_relative_to(ROOT / "tests") and "support" not in path.parts
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "time.sleep"
    ]
    assert not found


def test_nothing_is_left_to_do_later() -> None:
    """What is not done is an issue, not a mark in the tree."""
    marks = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    assert not [
        f"{_name(path)}" for path in _files(TEXT - {".lock", ".json"}) if marks.search(path.read_text(encoding="utf-8", errors="replace"))
    ]


def test_no_file_names_a_registry_or_a_machines_path() -> None:
    """The repository works anywhere: no index address, no folder of somebody's machine."""
    address = re.compile(
        r"https?://[^ \"'\n]*/(simple|packages)(/|\b)|pypi\.org|pythonhosted|(^|[^A-Za-z0-9._/-])/(wor"
        + r"k|far"
        + r"m|roo"
        + r"t|hom"
        + r"e)/",
        re.M,
    )
    found = [
        _name(path)
        for path in _files(TEXT)
        if path.name != "test_tidy_house.py" and address.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not found


def test_every_pin_has_a_hash() -> None:
    """What is installed is what was tried."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    pins = [line for line in lines if line and not line.startswith(("#", " "))]
    assert len(pins) > 30
    assert not [line[:60] for line in pins if "--hash=sha256:" not in line or "==" not in line]


def test_the_deprecated_binding_is_not_installed() -> None:
    """``pynvml`` of PyPI is another package than the module ``pynvml`` of nvidia-ml-py, and warns at every import."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert re.search(r"^nvidia-ml-py==", text, re.M)
    assert not re.search(r"^pynvml==", text, re.M)


@pytest.mark.parametrize("folder", ["unit", "property", "integration", "e2e", "contracts", "simulation", "tidy"])
def test_test_files_have_unique_names(folder: str) -> None:
    """A test's file name says what it is about, everywhere."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))
    assert list((ROOT / "tests" / folder).rglob("test_*.py")), f"tests/{folder} is empty"
