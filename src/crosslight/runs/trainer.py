"""Where and how long a run trains: what `conf/trainer/*.yaml` describes, turned into a Lightning trainer.

`max_steps`, `val_check_interval` and `log_every_n_steps` count optimizer updates.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch

from crosslight.errors import ConfigError
from crosslight.runs.compiling import check_compiler
from crosslight.runs.folder import RunFolder
from crosslight.runs.ranks import launch

PRECISIONS = {"auto": "auto", "32": "32-true", "tf32": "tf32", "bf16": "bf16-mixed", "16": "16-mixed"}


@dataclass(kw_only=True)
class TrainerRecipe:
    """`devices` processes (or GPUs) on each of `num_nodes` machines; auto takes what torchrun or srun has started.

    Where nobody has, auto is one process a GPU, on this machine. `launcher` says who must have started the run.
    `virtual_ranks` (null: the number of processes) times `accumulate` micro-batches make an update, on however many
    processes. `reduction` is `ordered` (the same bits on any number of processes), `fast` (DDP's reducer) or `auto`:
    fast on GPUs unless `deterministic`. `threads` is how many a process computes with; null shares a CPU's cores among
    the virtual ranks, so that a run has the same bits on any number of processes. `max_time` is "DD:HH:MM:SS" or null.
    `precision` is 32, bf16 or 16 (mixed, over weights in float32), or auto, for which `build_trainer_recipe` takes what
    suits machine and model. On GPUs also tf32: 32, whose matrix products round their factors to 10 bits.
    `on_oom=skip` leaves out an update that does not fit into memory, on all processes together; with the fast
    reduction it costs the overlap of communication and backward pass, and `stop` does not. `on_divergence=rollback`
    goes back to the last checkpoint where `stop` ends.
    `compile` hands the layers to torch.compile in training (docs/gpu.md): the first update takes a minute more.
    `unused_parameters` says that a micro-batch may leave some without a gradient; DDP's reducer then looks for them.
    """

    accelerator: Literal["auto", "cpu", "gpu"]
    devices: int | Literal["auto"]
    num_nodes: int | Literal["auto"]
    launcher: Literal["any", "torchrun", "srun"]
    strategy: Literal["auto", "ddp", "fsdp"]
    reduction: Literal["auto", "ordered", "fast"]
    precision: str | int
    deterministic: bool
    on_oom: Literal["skip", "stop"]
    on_divergence: Literal["stop", "rollback"]
    accumulate: int
    virtual_ranks: int | None
    threads: int | None
    max_steps: int
    max_epochs: int | None
    max_time: str | None
    val_check_interval: int
    log_every_n_steps: int
    gradient_clip_val: float | None
    compile: bool = False
    unused_parameters: bool = False

    def __post_init__(self) -> None:
        self.precision = PRECISIONS.get(str(self.precision), str(self.precision))
        if self.precision not in PRECISIONS.values():
            raise ConfigError(f"trainer.precision: {self.precision!r} is not one of {', '.join(PRECISIONS)}")
        if self.precision in ("16-mixed", "tf32") and not self.on_gpu:
            name = str(self.precision).removesuffix("-mixed")
            raise ConfigError(f"trainer.precision: {name} needs a GPU; bf16 works on this processor")
        if self.max_epochs is not None and self.max_epochs < 1:
            raise ConfigError(f"trainer.max_epochs: {self.max_epochs} is less than 1")
        for name in ("accumulate", "max_steps", "val_check_interval", "log_every_n_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"trainer.{name}: {getattr(self, name)} is less than 1")
        for name in ("devices", "num_nodes", "virtual_ranks", "threads"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise ConfigError(f"trainer.{name}: {value} is less than 1")
        if self.max_time is not None:
            seconds_of(self.max_time)
        if self.total_virtual_ranks % self.total_processes:
            raise ConfigError(
                f"trainer.virtual_ranks: {self.virtual_ranks} cannot be shared equally by {self.total_processes} "
                f"processes; take a multiple of {self.total_processes}, or other trainer.devices"
            )

    @property
    def on_gpu(self) -> bool:
        return self.accelerator == "gpu" or (self.accelerator == "auto" and torch.cuda.is_available())

    @property
    def processes(self) -> int:
        """How many processes run on this machine."""
        if self.devices == "auto":
            if launch().by:
                return launch().local_processes
            return max(1, torch.cuda.device_count()) if self.on_gpu else 1
        return self.devices

    @property
    def nodes(self) -> int:
        """How many machines."""
        return launch().nodes if self.num_nodes == "auto" else self.num_nodes

    @property
    def total_processes(self) -> int:
        return self.processes * self.nodes

    @property
    def total_virtual_ranks(self) -> int:
        return self.virtual_ranks or self.total_processes

    @property
    def threads_per_process(self) -> int | None:
        """None on GPUs: torch's own choice. OMP_NUM_THREADS, where it is set, counts as if it were `threads`."""
        if self.threads is not None or self.on_gpu:
            return self.threads
        if "OMP_NUM_THREADS" in os.environ:
            return int(os.environ["OMP_NUM_THREADS"])
        return max(1, (os.cpu_count() or 1) // max(1, self.total_virtual_ranks // self.nodes))

    @property
    def ordered(self) -> bool:
        if self.strategy == "fsdp":
            return False
        return self.reduction == "ordered" or (self.reduction == "auto" and (self.deterministic or not self.on_gpu))

    @property
    def overlap(self) -> bool:
        """Whether gradients are communicated during the backward pass."""
        return self.strategy == "fsdp" or (not self.ordered and self.on_oom == "stop")

    def check_machine(self) -> None:
        """Raise a ConfigError if this machine has not what the settings ask for."""
        self._check_launch()
        if self.on_gpu and not torch.cuda.is_available():
            alone = "trainer=cpu or trainer=auto" if self.strategy == "auto" else "trainer.accelerator=cpu"
            raise ConfigError(f"trainer.accelerator: no GPU can be used here; {alone} trains without one")
        if self.on_gpu and self.processes > torch.cuda.device_count():
            raise ConfigError(
                f"trainer.devices: {self.processes} GPUs are asked for, {torch.cuda.device_count()} can be seen; "
                f"srun shows each task all of a machine's with --gpus-per-node, not with --gpus-per-task"
            )
        if self.compile:
            check_compiler(on_gpu=self.on_gpu)

    def _check_launch(self) -> None:
        """Raise a ConfigError if the processes that there are contradict the settings."""
        here = launch()
        if self.launcher not in ("any", here.by):
            instead = f", but {here.by}" if here.by else ""
            raise ConfigError(
                f"trainer.launcher: {self.launcher} has not started this process{instead}; "
                f"docs/scaling.md has the command, and trainer=ddp starts the processes of one machine by itself"
            )
        if here.by and self.devices not in ("auto", here.local_processes):
            raise ConfigError(
                f"trainer.devices: {self.devices} on a machine, but {here.by} has started {here.local_processes}; "
                f"trainer.devices=auto takes what there is"
            )
        if here.by and self.num_nodes not in ("auto", here.nodes):
            raise ConfigError(
                f"trainer.num_nodes: {self.num_nodes} machines, but {here.by} has started processes on {here.nodes}; "
                f"trainer.num_nodes=auto takes what there is"
            )
        if self.nodes > 1 and not here.by:
            raise ConfigError(
                f"trainer.num_nodes: {self.num_nodes} machines; start one process a GPU on each with torchrun or srun"
            )

    def build(self, folder: RunFolder, callbacks: list[Any], loggers: list[Any], resumed: Any = None) -> Any:
        """The Lightning trainer; it stops when a callback says so. `resumed` is a checkpoint that is loaded already."""
        import lightning.pytorch as lightning
        from lightning.pytorch.callbacks import Checkpoint

        from crosslight.runs.strategies import AtomicCheckpoints, Launched

        if self.on_gpu:  # both ways: an earlier run of a sweep may have chosen the other
            torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
        trainer = lightning.Trainer(
            accelerator="gpu" if self.on_gpu else "cpu",
            devices=self.processes,
            num_nodes=self.nodes,
            strategy=self._strategy(),
            precision="32-true" if self.precision == "tf32" else self.precision,  # type: ignore[arg-type]
            deterministic=self.deterministic,
            max_epochs=-1,
            val_check_interval=self.val_check_interval,
            check_val_every_n_epoch=None,
            reload_dataloaders_every_n_epochs=1,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            log_every_n_steps=self.log_every_n_steps,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
            default_root_dir=folder.path,
            callbacks=callbacks,
            logger=loggers,
            plugins=[AtomicCheckpoints(resumed), Launched()],
        )
        # before every batch Lightning would ask rank 0 for a signal, which a GPU has to wait for; we ask once an update
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
        return trainer

    def _strategy(self) -> Any:
        if self.strategy == "fsdp":
            from lightning.pytorch.strategies import ModelParallelStrategy

            return ModelParallelStrategy(
                data_parallel_size=self.total_processes, tensor_parallel_size=1, save_distributed_checkpoint=False
            )
        if self.total_processes == 1:
            return "auto"
        from lightning.pytorch.strategies import DDPStrategy

        from crosslight.runs.strategies import PlainStrategy

        if not self.overlap:
            return PlainStrategy()
        return DDPStrategy(
            gradient_as_bucket_view=True,
            forward_sync_buffers=False,
            find_unused_parameters=self.unused_parameters,
        )


def seconds_of(text: str) -> float:
    """The seconds of "DD:HH:MM:SS"."""
    try:
        days, hours, minutes, seconds = (int(part) for part in text.split(":"))
    except ValueError as error:
        raise ConfigError(f'trainer.max_time: {text!r} is not "DD:HH:MM:SS", such as "00:02:30:00"') from error
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
