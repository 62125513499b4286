"""The page: what `/v1` answers, for people, in a browser.

Modules, in reading order:

    routes           what is served at which path, and its rights
    screens          what each screen asks the query service
    workload_screen  one Workload and its time line
    queue_screen     a queue in order, with starts as bars
    quota_tree       Cohorts and ClusterQueues with their quota
    rack_map         racks, and the largest gang that fits now
    manifests        what a user pastes to ask what would happen
    bars             times as bars on one axis
    charts           the data of charts
    texts            times in words
    rendering        templates to HTML, and the headers of every answer
    assets           style sheets and scripts
    changes          the stream that tells open pages to ask again

Decisions:

- The page is HTML that the server renders from the items of `admission.answers`, as `/v1` gives them to
  the same caller. There is no second source of what it shows, and no state in the browser.
- It works without a build step: htmx, its SSE extension and uPlot are files of their npm packages
  (`static/vendor`; `python -m tests.vendored` fetches and verifies them). Without scripts it is a page
  that does not refresh itself.
- A change is told as "something has changed", and the page asks again with the rights of its user
  (`changes`): a stream of contents would need those rights for each event.
- Names of tenants are hostile: everything is escaped, and the Content-Security-Policy allows no script or
  style but the files (`rendering`).
- Links are relative, so that it works behind a proxy at any sub-path.
"""
