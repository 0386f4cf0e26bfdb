import os
import zipfile

import pytest

from xtrace.errors import BadInput, MissingTool
from xtrace.runtime.repack import copy_package, find_package, put_on_path, rename_namespace

NAMES = ("pkg", "pkg_interface.py")


@pytest.fixture
def package(tmp_path):
    root = tmp_path / "site"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "_C.so").write_bytes(b"..\0pkg_ops\0..init_pkg_ops\0")
    (root / "pkg_interface.py").write_text("VALUE = 1\n")
    (root / "other.py").write_text("")
    return root


def test_a_copy_holds_only_the_package(package, tmp_path) -> None:
    copy = copy_package(package, tmp_path / "copy", "pkg/_C.so", NAMES)
    assert sorted(p.name for p in copy.root.iterdir()) == ["pkg", "pkg_interface.py"]
    assert copy.library.read_bytes() == (package / "pkg" / "_C.so").read_bytes()


def test_a_wheel_is_unpacked(package, tmp_path) -> None:
    wheel = tmp_path / "pkg.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in package.rglob("*"):
            archive.write(path, path.relative_to(package))
    copy = copy_package(wheel, tmp_path / "copy", "pkg/_C.so", NAMES)
    assert copy.library.is_file()
    assert not (copy.root / "other.py").exists()


def test_a_wheel_cannot_write_outside(tmp_path) -> None:
    wheel = tmp_path / "bad.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pkg/../../evil", "x")
    with pytest.raises(BadInput, match="unsafe"):
        copy_package(wheel, tmp_path / "copy", "pkg/_C.so", NAMES)
    assert not (tmp_path / "evil").exists()


def test_a_broken_wheel_is_an_input_error(tmp_path) -> None:
    (tmp_path / "bad.whl").write_bytes(b"no zip")
    with pytest.raises(BadInput, match="not a readable wheel"):
        copy_package(tmp_path / "bad.whl", tmp_path / "copy", "pkg/_C.so", NAMES)


def test_an_occupied_folder_is_refused(package) -> None:
    with pytest.raises(BadInput, match="not empty"):
        copy_package(package, package, "pkg/_C.so", NAMES)


def test_the_namespace_is_renamed_once_and_only_there(package, tmp_path) -> None:
    library = copy_package(package, tmp_path / "copy", "pkg/_C.so", NAMES).library
    rename_namespace(library, "pkg_ops", "bkg_ops")
    assert library.read_bytes() == b"..\0bkg_ops\0..init_pkg_ops\0"


@pytest.mark.parametrize("content", [b"nothing", b"\0pkg_ops\0\0pkg_ops\0"])
def test_an_unclear_namespace_is_refused(tmp_path, content: bytes) -> None:
    library = tmp_path / "x.so"
    library.write_bytes(content)
    with pytest.raises(BadInput, match="namespace string"):
        rename_namespace(library, "pkg_ops", "bkg_ops")
    assert library.read_bytes() == content


@pytest.mark.parametrize("new", ["pkg_opsx", "pkg_opb", "1kg_ops"])
def test_a_namespace_that_cannot_replace_is_refused(tmp_path, new: str) -> None:
    with pytest.raises(BadInput, match="cannot replace"):
        rename_namespace(tmp_path / "x.so", "pkg_ops", new)


def test_an_installed_hard_linked_library_is_never_written(tmp_path) -> None:
    library = tmp_path / "x.so"
    library.write_bytes(b"\0pkg_ops\0")
    os.link(library, tmp_path / "y.so")
    with pytest.raises(BadInput, match="hard-linked"):
        rename_namespace(library, "pkg_ops", "bkg_ops")


def test_patching_after_import_is_refused(package, tmp_path) -> None:
    copy = copy_package(package, tmp_path / "copy", "pkg/_C.so", NAMES)
    with pytest.raises(BadInput, match="already imported: os"):
        put_on_path(copy, "os")


def test_a_package_that_is_not_there() -> None:
    with pytest.raises(MissingTool) as info:
        find_package("no_such_package_at_all")
    assert info.value.code == "XT5030"
