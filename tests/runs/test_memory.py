"""How much memory a process may fill: of the machine or of a container, shared by processes, on the fullest GPU."""

from pathlib import Path

import pytest
import torch

from crosslight.runs.memory import available, memory_limit

GB = 2**30


def machine(tmp_path: Path, cgroup: str, files: dict[str, str | int]) -> int:
    """What is available on a machine with 8 GB to be had, to a process of that group."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 16777216 kB\nMemFree: 5 kB\nMemAvailable: {8 * GB // 1024} kB\n")
    (proc / "self" / "cgroup").write_text(cgroup)
    for name, content in files.items():
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(f"{content}\n")
    return available(proc, groups)


V1 = "3:cpu:/job\n4:memory:/job/step\n0::/\n"
CASES = {
    "no container": ("0::/user.slice\n", {}, 8),
    "no limit": ("0::/a\n", {"a/memory.max": "max", "a/memory.current": 1, "a/memory.stat": "inactive_file 0"}, 8),
    "version 2": (
        "0::/a\n",
        {"a/memory.max": 4 * GB, "a/memory.current": 3 * GB, "a/memory.stat": f"anon 1\ninactive_file {GB}"},
        2,
    ),
    "version 2, seen from inside": (
        "0::/\n",
        {"memory.max": 3 * GB, "memory.current": GB, "memory.stat": "inactive_file 0"},
        2,
    ),
    "version 1, the limit on the group above": (
        V1,
        {
            "memory/job/memory.limit_in_bytes": 2 * GB,
            "memory/job/memory.usage_in_bytes": GB,
            "memory/job/memory.stat": "inactive_file 7\ntotal_inactive_file 0",
            "memory/job/step/memory.limit_in_bytes": 2**63 - 4096,
            "memory/job/step/memory.usage_in_bytes": GB,
            "memory/job/step/memory.stat": "total_inactive_file 0",
        },
        1,
    ),
    "more in use than allowed": (
        "0::/a\n",
        {"a/memory.max": GB, "a/memory.current": 2 * GB, "a/memory.stat": "inactive_file 0"},
        0,
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_what_is_available_is_the_lower_of_machine_and_container(tmp_path: Path, case: str) -> None:
    cgroup, files, expected = CASES[case]
    assert machine(tmp_path, cgroup, files) == expected * GB


def test_processes_of_a_machine_share_half_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crosslight.runs.memory.available", lambda: 12 * GB)
    assert memory_limit(on_gpu=False, processes=1) == 6 * GB
    assert memory_limit(on_gpu=False, processes=3) == 2 * GB


def test_ranks_on_unlike_gpus_all_take_what_the_fullest_has(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [8 * GB, 5 * GB, GB]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device], 9 * GB))
    assert memory_limit(on_gpu=True, processes=1) == int(0.9 * 8 * GB)
    assert memory_limit(on_gpu=True, processes=2) == int(0.9 * 5 * GB)
