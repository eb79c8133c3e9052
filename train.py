"""Train a model: `python train.py model=base data=wmt14_small`. See README.md; `--help` lists the choices."""

import gc
import logging
import os
import sys

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from crosslight.config.command_line import explained, forced
from crosslight.config.root import register
from crosslight.errors import ConfigError, CrosslightError, ExpectationError
from crosslight.runs.folder import RunFolder, disk_trouble
from crosslight.runs.ranks import launch

log = logging.getLogger("crosslight.train")
failed_jobs: list[str] = []


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> None:
    """One run. In a sweep it is one job: if it fails, its log says why, and the sweep goes on."""
    gc.disable()  # until all is imported: the collector would look through it again and again, a tenth of the time
    from crosslight.starting import start

    sweeping = HydraConfig.get().mode == RunMode.MULTIRUN
    try:
        start(cfg)
    except CrosslightError as error:
        if not sweeping:
            stop(error)
        log.error("error: %s", error)
        failed_jobs.append(f"{HydraConfig.get().runtime.output_dir}: {error}")
    except Exception as error:
        if not sweeping:
            if trouble := disk_trouble(error):
                stop(trouble)
            raise
        log.exception("the job failed")
        failed_jobs.append(f"{HydraConfig.get().runtime.output_dir}: {type(error).__name__}: {error}")


def stop(error: Exception) -> None:
    """End with one sentence: status 1 if a promised score was missed, 2 if the user can mend something."""
    print(f"error: {error}", file=sys.stderr)
    sys.exit(1 if isinstance(error, ExpectationError) else 2)


def run() -> None:
    """What the command does, with an exit status."""
    sys.argv[1:] = forced(sys.argv[1:])
    try:
        if launch().by and {"-m", "--multirun"} & set(sys.argv):
            raise ConfigError(
                f"--multirun: {launch().by} has started several processes, but each run of a sweep "
                f"starts its own; use trainer=ddp without {launch().by}, or a job a run"
            )
        for argument in sys.argv[1:]:
            if argument == "resume=":
                raise ConfigError("resume=: names no folder; give a run folder, or auto")
            if argument.startswith("resume=") and argument not in ("resume=auto", "resume=null"):
                RunFolder.existing(
                    argument.removeprefix("resume="), "resume"
                )  # before Hydra makes a folder of that name
        main()
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        stop(ConfigError(explained(error, sys.argv[1:])))
    except CrosslightError as error:
        stop(error)
    except (OSError, ValueError) as error:  # Hydra opens train.log before our program begins
        if trouble := disk_trouble(error):
            stop(trouble)
        raise
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        logging.shutdown()
    if failed_jobs:
        print(f"{len(failed_jobs)} jobs of the sweep failed:", *failed_jobs, sep="\n  ", file=sys.stderr)
        sys.exit(1)


def run_with_others() -> None:
    """The same, if torchrun or srun has started this command several times: rank 0 runs it, the others follow.

    So one process makes the folder and reads the settings; what else the others are given is not looked at.
    """
    from crosslight.app import follow
    from crosslight.runs.meeting import of_launch

    if launch().rank:
        follow()
        return
    with of_launch():
        run()


if __name__ == "__main__":
    os.environ["HYDRA_FULL_ERROR"] = "1"  # let errors through to us: we print one sentence, not a hint at this variable
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch prints a stack for each connection that is closed
    register()
    try:
        run_with_others() if launch().by else run()
    except CrosslightError as error:
        stop(error)
