"""A forked command is what a new Python would be, in all that it can see, and ends as one would."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import environment
from forked import ForkServer

PROBE = """
import __main__, json, logging, multiprocessing.process, os, signal, sys, threading
handlers = {s.name: str(signal.getsignal(s)) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD)}
facts = {
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": sys.path, "flags": str(sys.flags), "cwd": os.getcwd(),
    "origin": multiprocessing.process.ORIGINAL_DIR, "main": [__main__.__file__, __name__, str(__main__.__spec__)],
    "names": sorted(vars(__main__)), "builtins": str(__builtins__), "input": sys.stdin.read(),
    "loader": type(__main__.__loader__).__name__,
    "terminals": [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)], "handlers": handlers,
    "encodings": [sys.stdin.encoding, sys.stdout.encoding, sys.stderr.errors], "hook": str(sys.excepthook),
    "threads": threading.active_count(), "root": [str(h) for h in logging.getLogger().handlers],
    "environment": {k: v for k, v in sorted(os.environ.items()) if not k.startswith(("PYTORCH_NVML", "TORCHINDUCTOR"))},
    "open": sorted(fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
    "masked": [s.name for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])], "leader": os.getsid(0) == os.getpid(),
}
print(json.dumps(facts))
print("said", file=sys.stderr)
"""
PROGRAMS = {
    "the end": "print('done')",
    "status": "import sys; sys.exit(7)",
    "sentence": "import sys; sys.exit('error: no such cow')",
    "error": "def f(): raise ValueError('cow')\nf()",
    "signal": "import os, signal; print('lost'); os.kill(os.getpid(), signal.SIGKILL)",
    "at exit": "import atexit, sys; atexit.register(print, 'left'); sys.exit(3)",
    "thread": "import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "syntax": "def",
}


def both(server: ForkServer, script: Path, *arguments: str) -> list[subprocess.CompletedProcess[bytes]]:
    """The script by a new Python, then by a forked one."""
    line, env = [str(script), *arguments], environment(CROSSLIGHT_CACHE="elsewhere")
    command = [sys.executable, *line]
    real = subprocess.run(command, input=b"in", capture_output=True, cwd=script.parent, env=env, check=False)
    return [real, server.run(line, stdin=b"in", cwd=script.parent, environment=env, timeout=60)]


def test_a_forked_command_sees_what_a_new_one_would(fork_server: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "probe.py"
    script.write_text(PROBE)
    real, forked = both(fork_server, script, "a=1", "--b", "c d")
    assert forked.stderr == real.stderr == b"said\n"
    expected = json.loads(real.stdout)
    assert expected["environment"]["CROSSLIGHT_CACHE"] == "elsewhere"
    assert expected["input"] == "in"
    assert json.loads(forked.stdout) == expected


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_forked_command_ends_as_a_new_one_would(fork_server: ForkServer, tmp_path: Path, name: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAMS[name])
    real, forked = both(fork_server, script)
    assert (forked.returncode, forked.stdout) == (real.returncode, real.stdout)
    if b"Traceback" in real.stderr:
        assert forked.stderr.splitlines()[-5:] == real.stderr.splitlines()[-5:]
    elif name != "syntax":
        assert forked.stderr == real.stderr


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, -2), (signal.SIGTERM, -15), (signal.SIGKILL, -9)])
def test_a_signal_reaches_a_forked_command(
    fork_server: ForkServer, tmp_path: Path, sent: signal.Signals, status: int
) -> None:
    script, ready = tmp_path / "sleeper.py", tmp_path / "ready"
    script.write_text(f"import time\nopen({str(ready)!r}, 'w')\ntime.sleep(60)")
    with open(os.devnull, "r+b") as nothing:
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), nothing.fileno())
        process = fork_server.start([str(script)], cwd=tmp_path, environment=environment(), new_session=True, **ends)
    while not ready.exists():
        assert process.poll() is None
        time.sleep(0.01)
    assert os.getpgid(process.pid) == process.pid
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.01)
    process.send_signal(sent)
    assert process.wait(timeout=30) == process.poll() == status
    process.kill()  # there is nobody left


def test_variables_that_imports_read_ask_for_a_new_process(fork_server: ForkServer) -> None:
    assert fork_server.suits(environment())
    assert fork_server.suits(environment(CROSSLIGHT_CACHE="x", PYTEST_CURRENT_TEST="y"))
    for name in ("OMP_NUM_THREADS", "PYTHONHASHSEED", "HF_HOME", "LOCAL_RANK"):
        assert not fork_server.suits(environment(**{name: "3"}))
    without = {name: value for name, value in environment().items() if name != "PATH"}
    assert not fork_server.suits(without)


def test_a_server_ends_with_its_commands(tmp_path: Path) -> None:
    script = tmp_path / "sleeper.py"
    script.write_text("import time\ntime.sleep(60)")
    server = ForkServer()
    with open(os.devnull, "r+b") as nothing:
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), nothing.fileno())
        process = server.start([str(script)], cwd=tmp_path, environment=environment(), **ends)
    handle = os.pidfd_open(process.pid)
    server.close()
    with pytest.raises(ProcessLookupError):
        signal.pidfd_send_signal(handle, 0)
