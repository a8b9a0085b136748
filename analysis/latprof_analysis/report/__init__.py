"""The report: a study as one page of text, tables and figures.

`build.build_report` makes the page's parts of a study; `html`, `markdown` and
`typeset` (PDF, PNG) write them down. Figures are Vega-Lite specifications over
CSV text, so what is drawn is what can be downloaded.
"""
