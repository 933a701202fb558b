-- What models got on benchmarks: the named aggregates of a run's models, and every item behind them.

CREATE TABLE benchmark_results (
    run_id        VARCHAR NOT NULL,
    bench         VARCHAR NOT NULL,
    model         VARCHAR NOT NULL,
    model_version VARCHAR,                   -- content hash; NULL for recorded scores
    aggregates    JSON NOT NULL,
    intervals     JSON NOT NULL,
    counts        JSON NOT NULL,
    protocol      JSON NOT NULL,
    created_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, bench, model)
);

-- A failed item has a failure and neither scores, decisions nor credit. `key` is unique in a run's benchmark and model.
CREATE TABLE benchmark_items (
    run_id      VARCHAR NOT NULL,
    bench       VARCHAR NOT NULL,
    model       VARCHAR NOT NULL,
    key         VARCHAR NOT NULL,
    id          VARCHAR NOT NULL,            -- the publisher's own
    part        VARCHAR NOT NULL,            -- what the protocol aggregates by
    subset      VARCHAR NOT NULL,
    prompt_hash VARCHAR NOT NULL,
    scores      DOUBLE[],                    -- one a response, in the item's order
    decisions   VARCHAR[],                   -- one a game
    gold        DOUBLE[] NOT NULL,
    credit      DOUBLE,                      -- how right, 0 to 1; NULL also where nothing is right or wrong
    truncated   BOOLEAN NOT NULL,
    failure     VARCHAR,
    CHECK (failure IS NULL OR (scores IS NULL AND decisions IS NULL AND credit IS NULL))
);
