"""`python -m latprof_analysis` is `latprof` without the agent."""

from latprof_analysis.cli import main

raise SystemExit(main())
