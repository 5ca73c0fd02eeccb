"""One file per thing a user can run, chosen with `pipeline=NAME` and wired by `conf/pipeline/NAME.yaml`.

A file here holds one class, a `mmspec.pipeline.Pipeline` (answers a prompt) or a `mmspec.pipeline.Job`
(runs without one, leaves files). It holds wiring and order alone; every algorithm lives in `mmspec`.
"""
