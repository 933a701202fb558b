-- What people changed of a queue and said of its items, in the order of happened_at: the queue as it is now follows from
-- it. `change` and its `detail`: see assay_pipelines.annotation.queue_state. `person` NULL: a rule of the queue itself.
CREATE TABLE queue_changes (
    change_id   VARCHAR NOT NULL,          -- 'c-' + digest
    queue_id    VARCHAR NOT NULL,
    change      VARCHAR NOT NULL,
    detail      JSON NOT NULL,
    person      VARCHAR,
    happened_at TIMESTAMPTZ NOT NULL
);

-- What stood beside the item of a vote, or of an answer to what is no pair: the version of the queue's guideline (1 is
-- the first), and whether a judge's or reward model's answer was in view. `suggestion` 'before': during the vote;
-- 'after': the vote replaces one of the same person, who had seen the suggestion since; NULL: neither.
CREATE TABLE vote_contexts (
    judgment_id VARCHAR NOT NULL,
    guideline   INTEGER,
    suggestion  VARCHAR CHECK (suggestion IN ('before', 'after')),
    run_id      VARCHAR
);
