-- Labels of single responses and of parts of them, beside the judgments of comparisons. All of them count that are not in
-- withdrawn_judgments; a label's annotator, origin and scale are its own. A ranking is the judgments of all its pairs, whose
-- origin names it.

-- A rating, a binary label, or a recorded score of one response. `aspect`: what was asked, e.g. 'helpfulness';
-- 'acceptable' for the binary label of a whole response (0 or 1), 'score' for a score without a name of its own.
-- `value` NULL: the annotator looked and could not say. `low`, `high`: the ends of the scale; NULL: unbounded or unknown.
CREATE TABLE response_judgments (
    judgment_id  VARCHAR NOT NULL,           -- 'v-' + digest, see assay.ids
    response_id  VARCHAR NOT NULL,
    annotator_id VARCHAR NOT NULL,
    aspect       VARCHAR NOT NULL,
    value        DOUBLE CHECK (isfinite(value)),
    low          DOUBLE,
    high         DOUBLE,
    rationale    VARCHAR,
    seconds      DOUBLE CHECK (seconds >= 0),
    origin       VARCHAR NOT NULL DEFAULT '',
    run_id       VARCHAR,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- A label of a part of one response: of its step number `step` (0 = the first), or of a span (`step` NULL). `start` and
-- `end`: characters (Unicode code points) of the response, the end not included. `value`: 1 correct, 0 neutral, -1 wrong,
-- on the scale -1 to 1; or a probability, on the scale 0 to 1. `label`: what a span is, e.g. the kind of error.
CREATE TABLE step_judgments (
    judgment_id  VARCHAR NOT NULL,           -- 't-' + digest, see assay.ids
    response_id  VARCHAR NOT NULL,
    annotator_id VARCHAR NOT NULL,
    step         INTEGER CHECK (step >= 0),
    start        INTEGER NOT NULL CHECK (start >= 0),
    "end"        INTEGER NOT NULL,
    label        VARCHAR,
    value        DOUBLE CHECK (isfinite(value)),
    low          DOUBLE,
    high         DOUBLE,
    rationale    VARCHAR,
    seconds      DOUBLE CHECK (seconds >= 0),
    origin       VARCHAR NOT NULL DEFAULT '',
    run_id       VARCHAR,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    CHECK ("end" >= start)
);

CREATE VIEW standing_response_judgments AS
    SELECT * FROM response_judgments j
    WHERE NOT EXISTS (SELECT 1 FROM withdrawn_judgments w WHERE w.judgment_id = j.judgment_id);

CREATE VIEW standing_step_judgments AS
    SELECT * FROM step_judgments j
    WHERE NOT EXISTS (SELECT 1 FROM withdrawn_judgments w WHERE w.judgment_id = j.judgment_id);

-- What the source says beside the labels: the model that wrote the response, its domain.
ALTER TABLE response_origins ADD COLUMN meta JSON;
