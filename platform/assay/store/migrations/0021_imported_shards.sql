-- Results of bulk work that are in the store, so that an interrupted stage imports each of its shards once. `stage`: the
-- stage's folder and a word of its own; `counts`: a JSON object of what became of the shard's rows.
CREATE TABLE imported_shards (
    stage       VARCHAR NOT NULL,
    shard       INTEGER NOT NULL,
    counts      JSON NOT NULL,
    run_id      VARCHAR,
    imported_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
