-- What people write about a run: a text, tags, and that it is out of the list.
CREATE TABLE run_notes (
    run_id     VARCHAR PRIMARY KEY,
    note       VARCHAR NOT NULL,
    tags       VARCHAR[] NOT NULL,
    archived   BOOLEAN NOT NULL,
    changed_by VARCHAR NOT NULL,
    changed_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
