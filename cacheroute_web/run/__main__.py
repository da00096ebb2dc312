"""`python -m cacheroute_web.run`: what `make run` becomes once the environment is there."""

import sys

from cacheroute_web.run.supervisor import main

sys.exit(main())
