-- What people are asked that is no pair: responses to rate or to mark, lists to rank. Pairs are in queue_items.

-- `item`: the response (rating, steps, spans) or the prompt whose responses are ranked.
CREATE TABLE queue_tasks (
    queue_id     VARCHAR NOT NULL,
    item         VARCHAR NOT NULL,
    priority     DOUBLE NOT NULL,
    payload      JSON NOT NULL,             -- question, its settings, the ids of the responses, what a person sees beside
    run_id       VARCHAR,
    PRIMARY KEY (queue_id, item)
);

-- Each answer as it was given. The judgments that it makes are in judgments, response_judgments and step_judgments, with
-- the origin 'queue/NAME/ATTEMPT'; an answer that is taken back is in withdrawn_judgments, and so are its judgments.
CREATE TABLE queue_answers (
    answer_id    VARCHAR NOT NULL,          -- 'u-' + digest
    queue        VARCHAR NOT NULL,
    item         VARCHAR NOT NULL,
    question     VARCHAR NOT NULL,
    annotator_id VARCHAR NOT NULL,
    attempt      INTEGER NOT NULL,
    labels       JSON NOT NULL,             -- lists `judgments`, `ratings`, `marks`; all empty where the item was passed on
    rationale    VARCHAR,
    shown_order  VARCHAR,
    seconds      DOUBLE,
    run_id       VARCHAR,
    created_at   TIMESTAMPTZ NOT NULL
);
