"""`python -m latprof_agent` is `latprof`."""

from latprof_agent.cli import main

raise SystemExit(main())
