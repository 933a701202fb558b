-- The normalised store. Ids are content hashes made in assay.ids / assay.store.identity, so every insert is
-- idempotent. Nothing is deleted: pools are views over decisions. Rows that a run wrote carry its run_id.

CREATE TABLE runs (
    run_id       VARCHAR PRIMARY KEY,
    kind         VARCHAR NOT NULL,           -- import, clean, curate, train, eval, rl, ...
    config       JSON NOT NULL,
    code_version VARCHAR NOT NULL,
    status       VARCHAR NOT NULL CHECK (status IN ('running', 'done', 'failed', 'interrupted')),
    pid          INTEGER,
    host         VARCHAR,
    metrics      JSON,
    error        VARCHAR,
    started_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    ended_at     TIMESTAMPTZ
);

-- What a run read and wrote: the edges of the lineage graph that no column below already holds.
CREATE TABLE run_links (
    run_id    VARCHAR NOT NULL,
    direction VARCHAR NOT NULL CHECK (direction IN ('input', 'output')),
    kind      VARCHAR NOT NULL,              -- file, snapshot, artifact, comparison, ...
    ref       VARCHAR NOT NULL,
    PRIMARY KEY (run_id, direction, kind, ref)
);

CREATE TABLE artifacts (
    artifact_id  VARCHAR PRIMARY KEY,        -- 'm-' or 'f-' + content digest
    kind         VARCHAR NOT NULL,           -- reward_model, policy, rollouts, report, eval_items, ...
    name         VARCHAR NOT NULL,
    path         VARCHAR NOT NULL,
    content_hash VARCHAR NOT NULL,
    spec         JSON,
    run_id       VARCHAR,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE prompts (
    prompt_id  VARCHAR PRIMARY KEY,
    messages   STRUCT("role" VARCHAR, "content" VARCHAR)[] NOT NULL,
    run_id     VARCHAR
);

CREATE TABLE responses (
    response_id VARCHAR PRIMARY KEY,
    prompt_id   VARCHAR NOT NULL,
    content     VARCHAR NOT NULL,
    run_id      VARCHAR
);

-- Unordered in identity: response_a is the lower response id, so A and B mean the same to every annotator.
CREATE TABLE comparisons (
    comparison_id VARCHAR PRIMARY KEY,
    prompt_id     VARCHAR NOT NULL,
    response_a    VARCHAR NOT NULL,
    response_b    VARCHAR NOT NULL,
    run_id        VARCHAR
);

-- Where a comparison was seen. The same pair in two sources is one comparison with two origins.
CREATE TABLE origins (
    comparison_id VARCHAR NOT NULL,
    source        VARCHAR NOT NULL,
    record_id     VARCHAR NOT NULL,          -- the source's own id, else 'FILE#ROW'
    category      VARCHAR,
    license       VARCHAR,
    language      VARCHAR,
    meta          JSON,
    run_id        VARCHAR,
    PRIMARY KEY (comparison_id, source, record_id)
);

CREATE TABLE annotators (
    annotator_id VARCHAR PRIMARY KEY,
    kind         VARCHAR NOT NULL CHECK (kind IN ('source', 'human', 'llm', 'reward_model', 'verifier', 'simulated')),
    name         VARCHAR NOT NULL,
    config       JSON
);

CREATE TABLE judgments (
    judgment_id   VARCHAR PRIMARY KEY,
    comparison_id VARCHAR NOT NULL,
    annotator_id  VARCHAR NOT NULL,
    answer        VARCHAR NOT NULL CHECK (answer IN ('A', 'B', 'tie', 'both_good', 'both_bad', 'skip')),
    strength      TINYINT CHECK (strength BETWEEN 0 AND 3),
    confidence    DOUBLE CHECK (confidence BETWEEN 0 AND 1),
    rationale     VARCHAR,
    shown_order   VARCHAR CHECK (shown_order IN ('AB', 'BA')),
    seconds       DOUBLE CHECK (seconds >= 0),
    origin        VARCHAR NOT NULL DEFAULT '',
    run_id        VARCHAR,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE attributes (
    comparison_id VARCHAR NOT NULL,
    annotator_id  VARCHAR NOT NULL,
    name          VARCHAR NOT NULL,
    value         JSON NOT NULL,
    run_id        VARCHAR,
    PRIMARY KEY (comparison_id, annotator_id, name)
);

CREATE TABLE feedback (
    feedback_id  VARCHAR PRIMARY KEY,
    response_id  VARCHAR NOT NULL,
    annotator_id VARCHAR NOT NULL,
    content      VARCHAR NOT NULL,
    run_id       VARCHAR
);

CREATE TABLE principles (
    principle_id VARCHAR PRIMARY KEY,
    statement    VARCHAR NOT NULL,
    run_id       VARCHAR
);

CREATE TABLE principle_judgments (
    judgment_id  VARCHAR PRIMARY KEY,
    response_id  VARCHAR NOT NULL,
    principle_id VARCHAR NOT NULL,
    annotator_id VARCHAR NOT NULL,
    answer       VARCHAR NOT NULL CHECK (answer IN ('yes', 'no', 'partially')),
    evidence     VARCHAR,
    feedback_id  VARCHAR,
    run_id       VARCHAR,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE SEQUENCE decision_order;
-- What curation concluded. Appended to, never changed; the row with the highest `position` is in force.
CREATE TABLE decisions (
    position      BIGINT PRIMARY KEY DEFAULT nextval('decision_order'),
    comparison_id VARCHAR NOT NULL,
    iteration     INTEGER NOT NULL DEFAULT 0,
    pool          VARCHAR NOT NULL CHECK (pool IN ('gold', 'silver', 'discarded', 'recycled', 'pending')),
    label         VARCHAR CHECK (label IN ('A', 'B', 'tie')),
    margin        DOUBLE,
    rule          VARCHAR NOT NULL,          -- the rule that decided, e.g. 'verifier', 'identical_responses'
    reason        VARCHAR NOT NULL,          -- for a person
    run_id        VARCHAR,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now()
);

-- A failed score has an error and no reward; never a reward of 0.
CREATE TABLE scores (
    response_id   VARCHAR NOT NULL,
    model_version VARCHAR NOT NULL,
    template_hash VARCHAR NOT NULL,
    principle     VARCHAR NOT NULL DEFAULT '',
    model         VARCHAR NOT NULL,
    reward        DOUBLE,
    probability   DOUBLE,
    uncertainty   DOUBLE,
    tokens        INTEGER,
    truncated     BOOLEAN,
    error         VARCHAR,
    run_id        VARCHAR,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (response_id, model_version, template_hash, principle),
    CHECK ((reward IS NULL) <> (error IS NULL))
);

CREATE TABLE embeddings (
    ref     VARCHAR NOT NULL,                -- prompt, response or comparison id
    encoder VARCHAR NOT NULL,
    vector  FLOAT[] NOT NULL,
    run_id  VARCHAR,
    PRIMARY KEY (ref, encoder)
);

CREATE TABLE snapshots (
    snapshot_id  VARCHAR PRIMARY KEY,        -- 's-' + digest of its name and content hash
    name         VARCHAR NOT NULL UNIQUE,
    content_hash VARCHAR NOT NULL,
    items        BIGINT NOT NULL,
    selection    JSON NOT NULL,
    run_id       VARCHAR,
    created_at   TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE snapshot_items (
    snapshot_id   VARCHAR NOT NULL,
    comparison_id VARCHAR NOT NULL,
    label         VARCHAR NOT NULL CHECK (label IN ('A', 'B', 'tie')),
    margin        DOUBLE,
    weight        DOUBLE NOT NULL DEFAULT 1.0,
    pool          VARCHAR NOT NULL,
    PRIMARY KEY (snapshot_id, comparison_id)
);

CREATE TABLE benchmark_prompts (
    benchmark VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    content   VARCHAR NOT NULL,
    run_id    VARCHAR,
    PRIMARY KEY (benchmark, prompt_id)
);

-- Rows that an import could not take: where, why, and the raw text. Everything else in the file is imported.
CREATE TABLE rejects (
    run_id VARCHAR NOT NULL,
    file   VARCHAR NOT NULL,
    row    BIGINT NOT NULL,                  -- 1-based
    field  VARCHAR,
    reason VARCHAR NOT NULL,
    raw    VARCHAR
);

CREATE VIEW current_decisions AS
    SELECT * FROM decisions QUALIFY row_number() OVER (PARTITION BY comparison_id ORDER BY position DESC) = 1;

-- The label of the source itself, where all its statements about the pair agree.
CREATE VIEW source_labels AS
    SELECT comparison_id,
           CASE WHEN min(answer) = max(answer) THEN min(answer) END AS label,
           max(strength) AS strength,
           count(*) AS statements
    FROM (
        SELECT comparison_id, strength,
               CASE WHEN answer IN ('A', 'B') THEN answer WHEN answer <> 'skip' THEN 'tie' END AS answer
        FROM judgments JOIN annotators USING (annotator_id)
        WHERE kind = 'source' AND answer <> 'skip'
    ) GROUP BY comparison_id;

-- Every comparison in exactly one pool; `unverified` = nobody has decided yet, its label is the source's.
CREATE VIEW pools AS
    SELECT c.comparison_id, c.prompt_id, c.response_a, c.response_b,
           coalesce(d.pool, 'unverified') AS pool,
           CASE WHEN d.pool IS NULL THEN s.label ELSE d.label END AS label,
           CASE WHEN d.pool IS NULL THEN s.strength ELSE d.margin END AS margin,
           d.rule, d.reason, d.iteration
    FROM comparisons c
    LEFT JOIN current_decisions d USING (comparison_id)
    LEFT JOIN source_labels s USING (comparison_id);
