"""What wrong usage of latprof leads to."""

from latprof_agent import cli


def refused(capsys, *words):
    """Return the one line that a wrong command line leads to."""
    try:
        status = cli.main([*words])
    except SystemExit as ended:
        status = ended.code
    shown = capsys.readouterr()
    assert (status, shown.out) == (2, "")
    (line,) = shown.err.splitlines()
    return line
