"""State as SQL views: `views.sql`, a script for DuckDB that defines one view per component.

The script does not name state files. When it is executed it reads the manifests, takes the newest completed one by the rule of
`epoch.recovery.catalogue` (fence, then epoch; nothing beyond the start of a later fence), and lets the views read exactly
the files that it names. So epochs that were abandoned, or are still under way, are never seen, and nothing
is written at a checkpoint.
A name that is not that of a state file of the component is an error: it could lead out of the job's folder, or be a pattern.
The views stay at that checkpoint. Files are pruned some checkpoints later; a query then fails, and the script is executed again.

``views/COMPONENT.parquet`` holds one row: the defaults of the record, marked as deleted, older than all others. It gives the views
their columns before there is any state, and the values of fields that were added to the record after a row was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from streamwork.components.parquet_file import to_bytes
from streamwork.components.schema import fields_of
from streamwork.state.rows import RowFormat

FILE = "views.sql"
FOLDER = "views"

_HEAD = """\
-- The state of job {job}, for DuckDB 1.2 or later. Written by Streamwork at each start of the job.
-- Execute this script, then query the views; execute it again to see a later checkpoint. From Python:
--     connection.execute(open({path}).read())
-- If the folder was moved, execute SET VARIABLE streamwork_moved_to = 'PATH OF THE JOB''S FOLDER' first.

SET VARIABLE streamwork_job = coalesce(getvariable('streamwork_moved_to'), {folder});

SET VARIABLE streamwork_manifest = (
    WITH manifests AS (
        SELECT json, CAST(json->>'$.fence' AS BIGINT) AS fence, CAST(json->>'$.epoch' AS BIGINT) AS epoch
        FROM read_json_objects(getvariable('streamwork_job') || '/checkpoints/????????????.json', format = 'unstructured')
    ), starts AS (
        SELECT CAST(json->>'$.fence' AS BIGINT) AS fence, CAST(json->>'$.epoch' AS BIGINT) AS epoch
        FROM read_json_objects(getvariable('streamwork_job') || '/fences/*.start.json', format = 'unstructured')
    )
    SELECT json FROM manifests AS m
    WHERE m.fence = 0
       OR coalesce(m.epoch <= (SELECT arg_min(s.epoch, s.fence) FROM starts AS s WHERE s.fence > m.fence), true)
    ORDER BY fence DESC, epoch DESC LIMIT 1
);
"""

_FILES = """
-- {component}: from the newest snapshot of each instance on
SET VARIABLE {files} = (
    SELECT list_concat([{defaults}], coalesce(list(path), []))
    FROM (
        SELECT CASE WHEN regexp_full_match(ref.value->>'$.path', 'state/{component}/[0-9]+/[A-Za-z0-9_-]+([.][a-z]+)+')
                    THEN getvariable('streamwork_job') || '/' || (ref.value->>'$.path')
                    ELSE error('the manifest names a file that leads out of the folder of {component}') END AS path
        FROM json_each(getvariable('streamwork_manifest')->'$.components."{component}"') AS instance,
             json_each(instance.value) AS ref
        WHERE {counts}
        QUALIFY CAST(ref.key AS BIGINT) >= coalesce(
            max(CAST(ref.key AS BIGINT)) FILTER (ref.value->>'$.path' LIKE '%.snapshot.parquet')
            OVER (PARTITION BY instance.key), 0)
    )
);
"""

_VIEW = """\
CREATE OR REPLACE TEMP VIEW {view} AS
SELECT {columns}
FROM (
    SELECT * FROM read_parquet(getvariable('{files}'), union_by_name = true, filename = '__file')
    QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY __epoch DESC) = 1
)
WHERE NOT __deleted;
"""

_SAME = """
-- {component} has no view: {names} differ in case only, and names in DuckDB ignore case
"""


def script(job: str, folder: Path, components: Sequence[RowFormat], dropped: dict[str, int]) -> str:
    """`dropped`: component -> the fence whose start dropped its state in manifests of lower fences."""
    parts = [_HEAD.format(job=job, folder=_text(str(folder)), path=repr(str(folder / FILE)))]
    taken: set[str] = set()
    for number, rows in enumerate(components):
        name = rows.component
        while name.lower() in taken:  # names that differ in case only are one name to DuckDB
            name += "_"
        taken.add(name.lower())
        parts += _component(rows, name, f"streamwork_files_{number}", dropped.get(rows.component, 0))
    return "".join(parts)


def _component(rows: RowFormat, view: str, files: str, dropped: int) -> Iterator[str]:
    names = [*rows.key_names, *rows.record.__struct_fields__]
    lower = [name.lower() for name in names]
    if same := [name for name in names if lower.count(name.lower()) > 1]:
        yield _SAME.format(component=rows.component, names=", ".join(same))
        return
    defaults = f"getvariable('streamwork_job') || '/{FOLDER}/{rows.component}.parquet'"
    counts = f"CAST(getvariable('streamwork_manifest')->>'$.fence' AS BIGINT) >= {dropped}" if dropped else "true"
    yield _FILES.format(component=rows.component, files=files, defaults=defaults, counts=counts)
    instance = f"regexp_extract(__file, '/state/{rows.component}/([0-9]+)/', 1)"
    columns = [_quoted(name) for name in rows.key_names] or [f"CAST({instance} AS INTEGER) AS __instance"]
    for name, field in fields_of(rows.record).items():
        quoted, default = _quoted(name), f"(SELECT {_quoted(name)} FROM read_parquet({defaults}))"
        if name not in rows.defaults or rows.defaults[name].null_count:
            columns.append(quoted)
        elif not field.nullable:
            columns.append(f"coalesce({quoted}, {default}) AS {quoted}")
        else:  # a null may be the value, or the file may be older than the field
            having = f"(SELECT file_name FROM parquet_schema(getvariable('{files}')) WHERE name = {_text(name)})"
            columns.append(
                f"CASE WHEN {quoted} IS NULL AND __file NOT IN {having} THEN {default} ELSE {quoted} END AS {quoted}"
            )
    key = ", ".join(map(_quoted, rows.key_names)) or instance
    yield _VIEW.format(view=_quoted(view), columns=",\n       ".join(columns), files=files, key=key)


def defaults_file(rows: RowFormat) -> bytes:
    """``views/COMPONENT.parquet``."""
    own = {"__epoch": pa.array([-1], pa.int64()), "__deleted": pa.array([True])}
    known = {**rows.defaults, **own}
    columns = [known.get(field.name, pa.nulls(1, field.type)) for field in rows.schema]
    schema = pa.schema([pa.field(field.name, field.type) for field in rows.schema])
    return to_bytes(pa.Table.from_arrays(columns, schema=schema))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
