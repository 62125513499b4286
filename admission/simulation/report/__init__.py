"""Report: the result of a simulation as one HTML page.

Modules, in reading order:

    page        the page: table, text and the three charts
    series      what the charts show, as numbers
    charts      the charts: GPUs over time, waits, promises against starts
    svg         the few marks that charts are made of: elements, scales, axes

The SVG is written here, in about 360 lines (`charts` and `svg`), and not by a chart library. The report
must be one file without scripts that opens anywhere and follows the reader's light or dark theme.
"""
