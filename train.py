"""Train a model: `python train.py model=base data=wmt14_small`. See README.md; `--help` lists the choices."""

import logging
import os
import sys

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from crosslight.config.command_line import explained, forced
from crosslight.config.root import register
from crosslight.errors import CrosslightError, ExpectationError


@hydra.main(version_base="1.3", config_path="conf", config_name="train")
def main(cfg: DictConfig) -> None:
    """One run; in a sweep, one job of it."""
    from crosslight.starting import start

    start(cfg)


if __name__ == "__main__":
    os.environ["HYDRA_FULL_ERROR"] = (
        "1"  # let errors through to us: we print one sentence, not Hydra's hint at this variable
    )
    register()
    sys.argv[1:] = forced(sys.argv[1:])
    try:
        main()
    except ExpectationError as error:
        sys.exit(f"error: {error}")
    except CrosslightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except (HydraException, OmegaConfBaseException) as error:
        print(f"error: {explained(str(error), sys.argv[1:])}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        logging.shutdown()
