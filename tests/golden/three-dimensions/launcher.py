"""torchrun, without a report and a traceback of its own where train.py has said what is wrong."""

import logging
import sys

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

logging.getLogger(SignalException.__module__).setLevel(logging.CRITICAL)
try:
    run.main(sys.argv[2:])
except ChildFailedError as error:
    _, failure = error.get_first_failure()
    if failure.exitcode < 0:
        raise  # a signal ended it, as where the host has no memory left: nothing is said yet
    sys.exit(failure.exitcode)
except SignalException as error:
    sys.exit(128 + error.sigval)
