"""The recipes of packaging/ name the version and the dependencies of the project; the package loads in its oldest Python."""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
CONDA = PACKAGING / "conda/recipe.yaml"
SPACK = sorted((PACKAGING / "spack").rglob("package.py"))
(EASYBUILD,) = (PACKAGING / "easybuild").glob("*.eb")
CONTAINER = PACKAGING / "container/Containerfile"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CMAKE = (ROOT / "CMakeLists.txt").read_text()
#: What CMake looks for, and the names of conda, of Spack and of Debian (to build, to run).
LIBRARIES = {
    "find_package(JPEG": ("libjpeg-turbo", "jpeg", "libjpeg-dev", "libjpeg62-turbo"),
    "find_package(PNG": ("libpng", "libpng", "libpng-dev", "libpng16-16t64"),
    "find_library(WEBP": ("libwebp-base", "libwebp", "libwebp-dev", "libwebp7"),
    "find_path(XXHASH": ("xxhash", "xxhash", "libxxhash-dev", ""),
    "find_path(NLOHMANN_JSON": ("nlohmann_json", "nlohmann-json", "nlohmann-json3-dev", ""),
    "pkg_check_modules(HWLOC": ("libhwloc", "hwloc", "libhwloc-dev", "libhwloc15"),
}


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.M)
    assert match, f"{pattern} was not found"
    return match[1]


def checker(program: str) -> Path:
    """A program of build/recipe-env."""
    path = ROOT / "build/recipe-env/bin" / program
    if not path.exists():
        pytest.skip("`./dev setup --with recipes` installs the programs that check recipes")
    return path


def run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


VERSION = found(r"project\(penstock VERSION ([0-9.]+)", CMAKE)
LEAST_CMAKE = found(r"cmake_minimum_required\(VERSION ([0-9.]+)\)", CMAKE)


def requirements(given: list[str]) -> dict[str, str]:
    """Name → least version."""
    matches = [re.match(r"([\w-]+)(?:>=([\w.]+))?", each) for each in given]
    return {match[1].replace("_", "-"): match[2] or "" for match in matches if match}


TO_RUN = requirements([*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["mpi"]])
TO_BUILD = requirements(PROJECT["build-system"]["requires"])
LEAST_PYTHON = PROJECT["project"]["requires-python"].removeprefix(">=")


def least(name: str, version: str) -> str:
    return f"{name} >={version}" if version else name


def conda_list(section: str) -> list[str]:
    """The entries of a list under `requirements`."""
    text = CONDA.read_text()
    text = text[text.index("\nrequirements:") :]
    lines = text[text.index(f"\n  {section}:\n") :].splitlines()[2:]
    entries = []
    for line in lines:
        if not line.startswith("    - "):
            break
        entries.append(line.removeprefix("    - "))
    return entries


def test_conda() -> None:
    assert f'version: "{VERSION}"' in CONDA.read_text()
    assert set(conda_list("run")) == {
        least("python", LEAST_PYTHON),
        *(least(name, version) for name, version in TO_RUN.items()),
        "${{ mpi }}",
    }
    assert f"cmake >={LEAST_CMAKE}" in conda_list("build")
    host = conda_list("host")
    for name, version in TO_BUILD.items():
        assert least(name, version) in [each.replace("_", "-") for each in host]
    for look, (name, *_) in LIBRARIES.items():
        assert look in CMAKE
        assert name in [each.split()[0] for each in host]
    assert f"libhwloc {hwloc_range('>={},<{}')}" in host


def hwloc_range(form: str) -> str:
    match = re.search(r"hwloc>=([\d.]+) hwloc<(\d+)", CMAKE)
    assert match
    return form.format(match[1], match[2])


RENDER = """
import sys, rattler_build
variants = rattler_build.VariantConfig.from_file(sys.argv[2])
for variant in rattler_build.Stage0Recipe.from_file(sys.argv[1]).render(variants):
    print(variant.recipe.requirements.run[-1])
"""


def test_conda_renders() -> None:
    python = checker("python")
    assert sorted(run(python, "-c", RENDER, CONDA, PACKAGING / "conda/variants.yaml").split()) == ["mpich", "openmpi"]


class Spack:
    """Stands in for Spack: runs a package's file and keeps its directives."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {}
        package = types.ModuleType("spack.package")
        for name in ("license", "version", "variant", "depends_on", "extends", "conflicts"):
            setattr(package, name, self.directive(name))
        modules = {
            "spack": types.ModuleType("spack"),
            "spack.package": package,
            "spack_repo": types.ModuleType("spack_repo"),
        }
        for name, builder in (("cmake", "CMakePackage"), ("python", "PythonPackage")):
            module = types.ModuleType(f"spack_repo.builtin.build_systems.{name}")
            setattr(module, builder, type(builder, (), {}))
            modules[module.__name__] = module
        for name in ("spack_repo.builtin", "spack_repo.builtin.build_systems"):
            modules[name] = types.ModuleType(name)
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        names: dict[str, Any] = {}
        exec(compile(path.read_text(), path, "exec"), names)
        words = path.parent.name.split("_")
        assert "".join(map(str.title, words)) in names, "Spack derives the class from the folder's name"

    def directive(self, name: str) -> Any:
        return lambda *given, **more: self.said.setdefault(name, []).append((given, more))

    def dependencies(self) -> Iterator[str]:
        return (given[0] for given, _ in self.said["depends_on"])


@pytest.mark.parametrize("path", SPACK, ids=lambda path: path.parent.name)
def test_spack(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spack = Spack(path, monkeypatch)
    assert [given for given, _ in spack.said["version"]] == [(VERSION,)]
    needed = list(spack.dependencies())
    assert {f"cmake@{LEAST_CMAKE}:", "mpi", "c", "cxx"} <= set(needed)
    names = {each.split("@")[0] for each in needed}
    for _, name, *_ in LIBRARIES.values():
        assert name in names
    assert hwloc_range("hwloc@{}:") in "".join(needed)
    if path.parent.name.startswith("py_"):
        assert f"python@{LEAST_PYTHON}:" in needed
        for name, version in {**TO_RUN, **TO_BUILD}.items():
            assert (f"py-{name}@{version}:" if version else f"py-{name}") in needed
    else:
        options = re.findall(r"define(?:_from_variant)?\(\"(PENSTOCK_\w+)", path.read_text())
        known = (ROOT / "cmake/options.cmake").read_text()
        assert options and all(f"({option} " in known for option in options)


def test_easybuild() -> None:
    names: dict[str, Any] = {}
    exec(compile(EASYBUILD.read_text(), EASYBUILD, "exec"), names)
    toolchain = names["toolchain"]
    assert names["version"] == VERSION
    assert EASYBUILD.name == f"Penstock-{VERSION}-{toolchain['name']}-{toolchain['version']}.eb"
    needed = {name for name, *_ in [*names["builddependencies"], *names["dependencies"]]}
    # numpy comes with SciPy-bundle, click and rich with Python-bundle-PyPI.
    assert {
        "Python",
        "SciPy-bundle",
        "Python-bundle-PyPI",
        "mpi4py",
        "CMake",
        "scikit-build-core",
        "nanobind",
    } <= needed
    assert {"libjpeg-turbo", "libpng", "libwebp", "xxHash", "nlohmann_json", "hwloc"} <= needed
    assert set(TO_RUN) == {"numpy", "click", "rich", "mpi4py"}, (
        "tell EasyBuild's recipe, and this test, where it comes from"
    )
    versions = {name: version for name, version, *_ in names["builddependencies"]}
    for name, least_version in [("CMake", LEAST_CMAKE), *TO_BUILD.items()]:
        if name in versions and least_version:
            assert [int(n) for n in versions[name].split(".")] >= [int(n) for n in least_version.split(".")]


def test_easybuild_has_the_dependencies() -> None:
    """Each has a recipe of EasyBuild, by the toolchain or one that it is made of."""
    recipes = checker("python").parents[1] / "easybuild/easyconfigs"
    names: dict[str, Any] = {}
    exec(compile(EASYBUILD.read_text(), EASYBUILD, "exec"), names)
    toolchain = names["toolchain"]["version"]
    text = next(recipes.rglob(f"gompi-{toolchain}.eb")).read_text()
    compiler = found(r"^local_gccver = '(.+)'", text)
    ends = [f"GCCcore-{compiler}", f"GCC-{compiler}", *(f"{each}-{toolchain}" for each in ("gompi", "gfbf", "foss"))]
    for name, version in [*names["builddependencies"], *names["dependencies"]]:
        folder = recipes / name[0].lower() / name
        wanted = [folder / f"{name}-{version}-{end}.eb" for end in ends]
        assert any(path.exists() for path in wanted), (
            f"{name} {version}: there are {sorted(map(str, folder.glob('*')))}"
        )


def test_cibuildwheel_reads_its_table() -> None:
    for arch in ("x86_64", "aarch64"):
        words = ["--platform", "linux", "--archs", arch, "--print-build-identifiers", ROOT]
        identifiers = run(checker("cibuildwheel"), *words).split()
        assert {f"cp310-manylinux_{arch}", f"cp314t-manylinux_{arch}"} <= set(identifiers)
        assert not [each for each in identifiers if "musl" in each or not each.endswith(arch)]


def test_hadolint_accepts_the_container() -> None:
    # Debian keeps one version of a package in a release, so there is none to name.
    run(checker("hadolint"), "--ignore", "DL3008", CONTAINER)


def test_container() -> None:
    text = CONTAINER.read_text()
    assert f'version="{VERSION}"' in text
    build, run = text.split("\nFROM ${BASE}\n")
    for _, _, to_build, to_run in LIBRARIES.values():
        assert f" {to_build}" in build and f" {to_run}" in run
    for copied in re.findall(r"^COPY (?!--from)(.+) /src\S*$", build, re.M):
        for name in copied.split():
            assert (ROOT / name).exists()
    # What CMakeLists.txt reads, without the tests.
    for folder in re.findall(r"(?:add_subdirectory|include)\((\w+)[/)]", CMAKE):
        if folder not in ("tests", "GNUInstallDirs"):
            assert f"COPY {folder} /src/{folder}" in build


def test_cibuildwheel_builds_for_every_python_but_no_musl() -> None:
    wanted = PROJECT["tool"]["cibuildwheel"]
    patterns = wanted["build"].split()
    assert wanted["linux"]["archs"] == ["x86_64", "aarch64"]

    def is_built(identifier: str) -> bool:
        return any(fnmatch.fnmatch(identifier, pattern) for pattern in patterns)

    least = int(LEAST_PYTHON.split(".")[1])
    for arch in wanted["linux"]["archs"]:
        assert all(is_built(f"cp3{minor}-manylinux_{arch}") for minor in range(least, 16))
        assert is_built(f"cp314t-manylinux_{arch}")
        assert not is_built(f"cp314-musllinux_{arch}") and not is_built(f"cp3{least - 1}-manylinux_{arch}")


def test_debians_packages_are_those_of_dev() -> None:
    wanted = (ROOT / "scripts/environment.sh").read_text()
    for _, _, to_build, _ in LIBRARIES.values():
        assert to_build in wanted


def test_no_named_tuple_has_another_base() -> None:
    """Before Python 3.11 such a class raises TypeError when its module is imported, and no type checker says so."""
    package = ROOT / "python/penstock"
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and len(node.bases) > 1 and "NamedTuple" in map(ast.unparse, node.bases)
    ]
    assert not wrong
