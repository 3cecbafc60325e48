"""Attempts to read and write files that the policy does not name. Each one works in a process that is not confined."""

from __future__ import annotations

import os

import pytest

from .confined import ROOTS, run, run_free
from .conftest import Place

# The code of each: `secret` is a file outside, `outside` its directory, `own` the directory of the process.
ATTEMPTS = {
    "read": "result = open(secret).read()",
    "read by a path with dots": "result = open(own + '/../outside/secret').read()",
    "read by a symbolic link": "os.symlink(secret, own + '/link'); result = open(own + '/link').read()",
    "read below a linked directory": "os.symlink(outside, own + '/link'); result = open(own + '/link/secret').read()",
    "read by a hard link": "os.link(secret, own + '/link'); result = open(own + '/link').read()",
    "read from the directory itself": "os.chdir(outside); result = open('secret').read()",
    "read by a directory's descriptor": """
        directory = os.open(outside, os.O_PATH)
        result = os.open("secret", os.O_RDONLY, dir_fd=directory)""",
    "read by openat2": """
        import struct
        how = struct.pack("QQQ", os.O_RDONLY, 0, 0)
        result = call(N["openat2"], -100, ctypes.c_char_p(secret.encode()), ctypes.c_char_p(how), len(how))""",
    "list": "result = os.listdir(outside)",
    "list what is above": "result = os.listdir(own + '/..')",
    "write": "open(outside + '/new', 'w').write('mine')",
    "append": "open(secret, 'a').write('mine')",
    "truncate": "os.truncate(secret, 0)",
    "remove": "os.remove(secret)",
    "make a directory": "os.mkdir(outside + '/new')",
    "make a link there": "os.symlink('/', outside + '/new')",
    "move in": "os.rename(secret, own + '/mine')",
    "move out": "open(own + '/mine', 'w').close(); os.rename(own + '/mine', outside + '/new')",
    "link out": "open(own + '/mine', 'w').close(); os.link(own + '/mine', outside + '/new')",
    "list what is at the root": "result = os.listdir('/')",
    "read the users": "result = open('/etc/passwd').read()",
}

# What Landlock does not restrict is refused for all files, as a system call.
ATTRIBUTES = {
    "mode": ("os.chmod(secret, 0o777)", ("chmod", "fchmodat")),
    "mode by a descriptor": ("fd = os.open(own, os.O_RDONLY); os.fchmod(fd, 0o777)", ("fchmod",)),
    "owner": ("os.chown(secret, os.getuid(), os.getgid())", ("chown", "fchownat")),
    "times": ("os.utime(secret, (0, 0))", ("utimensat",)),
    "attributes": ("os.setxattr(secret, 'user.mine', b'mine')", ("setxattr",)),
    "watch": ("import os as it; call(N['inotify_init1'], 0)", ("inotify_init1",)),
    "handle": ("call(N['name_to_handle_at'], -100, ctypes.c_char_p(secret.encode()), ctypes.create_string_buffer(200), "
               "ctypes.byref(ctypes.c_int()), 0)", ("name_to_handle_at",)),
    "a pipe with a name": ("os.mkfifo(own + '/pipe')", ("mknod", "mknodat")),
    "a device": ("import stat; os.mknod(own + '/disk', 0o600 | stat.S_IFBLK, os.makedev(8, 0))", ("mknod", "mknodat")),
}  # fmt: skip


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_outside(attempt: str, place: Place) -> None:
    code = ATTEMPTS[attempt]
    confined = run(code, {"write": [str(place.own)]}, user=place.user, names=place.names)
    confined.refused(errors=("EACCES", "EPERM", "EXDEV"))
    assert confined.layers["files"][0] == "provided"
    assert (place.outside / "secret").read_text() == "secret"
    assert os.listdir(place.outside) == ["secret"]
    # It would have worked.
    for name in os.listdir(place.own):
        (place.own / name).unlink()
    assert run_free(code, user=place.user, names=place.names).error is None


@pytest.mark.parametrize("attempt", ATTRIBUTES)
def test_attributes_are_not_changed(attempt: str, place: Place) -> None:
    code, names = ATTRIBUTES[attempt]
    before = (place.outside / "secret").stat()
    confined = run(code, {"write": [str(place.own)]}, user=place.user, names=place.names)
    confined.refused()
    assert any(f"refused {name}\n" in confined.stderr for name in names), confined
    after = (place.outside / "secret").stat()
    assert (after.st_mode, after.st_uid, after.st_mtime) == (before.st_mode, before.st_uid, before.st_mtime)


def test_files_by_handle(user: str) -> None:
    code = "call(N['open_by_handle_at'], -100, ctypes.create_string_buffer(200), 0)"
    run(code, user=user).killed("open_by_handle_at")


def test_what_may_be_read_may_not_be_written(place: Place) -> None:
    policy = {"read": [str(place.outside)]}
    assert run("result = open(secret).read()", policy, user=place.user, names=place.names).result == "secret"
    for code in ("open(secret, 'a')", "os.truncate(secret, 0)", "os.remove(secret)", "os.mkdir(outside + '/new')"):
        run(code, policy, user=place.user, names=place.names).refused()


def test_a_single_file(place: Place) -> None:
    policy = {"read": [str(place.outside / "secret")]}
    assert run("result = open(secret).read()", policy, user=place.user, names=place.names).result == "secret"
    run("os.listdir(outside)", policy, user=place.user, names=place.names).refused()


def test_own_files(place: Place) -> None:
    code = """
        import pathlib, shutil
        own = pathlib.Path(own)
        (own / "a" / "b").mkdir(parents=True)
        (own / "a" / "b" / "file").write_text("mine")
        os.rename(own / "a" / "b" / "file", own / "file")
        os.link(own / "file", own / "a" / "link")
        os.symlink("file", own / "soft")
        os.truncate(own / "file", 2)
        shutil.copyfile(own / "file", own / "copy")
        shutil.rmtree(own / "a")
        result = sorted(os.listdir(own)), (own / "soft").read_text()"""
    done = run(code, {"write": [str(place.own)]}, user=place.user, names=place.names)
    assert done.result == [["copy", "file", "soft"], "mi"], done
    assert done.violation is None


# The host's, and its own: what would open files anew, write to memory, or show what was scrubbed.
PROC = [
    "/proc/{host}/environ",
    "/proc/{host}/mem",
    "/proc/{host}/maps",
    "/proc/{host}/cmdline",
    "/proc/{host}/root/etc/passwd",
    "/proc/{host}/cwd/pyproject.toml",
    "/proc/{host}/fd/0",
    "/proc/1/status",
    "/proc/self/mem",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/proc/self/fd/0",
    "/proc/self/maps",
    "/proc/self/task",
    "/proc/self/exe",
    "/proc/sys/kernel/core_pattern",
    "/proc/kcore",
    "/proc/net/tcp",
]


@pytest.mark.parametrize("lacking", [(), ("unshare",)], ids=["hidden", "without namespaces"])
def test_proc(lacking: tuple[str, ...], user: str) -> None:
    code = """
        result = []
        for path in paths:
            try:
                os.open(path, os.O_RDONLY)
            except OSError as error:
                continue
            result.append(path)
        try:
            open("/proc/self/mem", "r+b")
        except OSError as error:
            pass
        else:
            result.append("written")"""
    paths = [path.format(host=os.getpid()) for path in PROC]
    done = run(code, user=user, names={"paths": paths}, lacking=lacking)
    assert done.layers["proc"][0] == ("not_available" if lacking else "provided")
    # A descriptor that is open may be opened anew, as what it was opened as: Landlock does not restrict pipes.
    assert done.result in ([], ["/proc/self/fd/0"] if lacking else []), done
    allowed = run(
        "result = open('/proc/meminfo').read(8), open('/proc/self/status').read(4)",
        {"proc": ["meminfo", "self/status"]},
        user=user,
        lacking=lacking,
    )
    assert allowed.result == ["MemTotal", "Name"], allowed


def test_devices(user: str) -> None:
    """Of the machine: its disk, its memory, its consoles."""
    for path in ("/dev/vda", "/dev/sda", "/dev/mem", "/dev/kmsg", "/dev/console", "/dev/ptmx", "/dev/fuse"):
        if os.path.exists(path):
            run("os.open(path, os.O_RDWR)", user=user, names={"path": path}).refused()


def test_shared_names(user: str) -> None:
    """What lies in ``/dev/shm`` belongs to whoever finds it."""
    run("open('/dev/shm/mine', 'w')", user=user).refused()
    run("os.listdir('/dev/shm')", user=user).refused()


def test_files_of_others_for_the_superuser(place: Place) -> None:
    """The superuser without its rights is a user like others: also where the policy lets it."""
    if place.user != ROOTS:
        pytest.skip("only for the superuser")
    private = place.own / "private"
    private.write_text("private")
    os.chown(private, 12345, 12345)
    private.chmod(0o600)
    run("open(own + '/private').read()", {"write": [str(place.own)]}, names=place.names).refused()
