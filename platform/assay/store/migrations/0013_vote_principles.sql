-- What people said of principles together with their vote on a comparison: part of the vote, written with it and taken
-- back with it. `side`: the response's letter in the comparison, whose two responses may be one and the same text.
-- `evidence`: the span of the response that supports the answer, word for word. Keys are kept unique by assay.journal,
-- which writes a vote's answers in the transaction of the vote.
CREATE TABLE vote_principles (
    judgment_id  VARCHAR NOT NULL,           -- the vote
    side         VARCHAR NOT NULL CHECK (side IN ('A', 'B')),
    response_id  VARCHAR NOT NULL,
    principle_id VARCHAR NOT NULL,
    answer       VARCHAR NOT NULL CHECK (answer IN ('yes', 'no', 'partially')),
    evidence     VARCHAR,
    run_id       VARCHAR
);

-- The same as principle judgments, those of votes that were taken back marked. `vote_id`: the vote's judgment.
CREATE VIEW principle_votes AS
    SELECT 'y-' || left(sha256(v.response_id || chr(31) || v.principle_id || chr(31) || j.annotator_id || chr(31) || v.answer), 32)
               AS judgment_id,
           v.judgment_id AS vote_id, j.comparison_id, v.side, v.response_id, v.principle_id, j.annotator_id, v.answer, v.evidence,
           v.run_id, j.created_at, w.withdrawn_at
    FROM vote_principles v JOIN judgments j USING (judgment_id) LEFT JOIN withdrawn_judgments w USING (judgment_id);

-- Every principle judgment that counts, one row for each judgment_id: imported and extracted ones, and those of standing
-- votes. `item`: the comparison that a vote was on; for the others see feedback_items. Partitioned and matched by what makes
-- up the id, so that a filter on a response reaches the tables.
CREATE VIEW standing_principle_judgments AS
    SELECT judgment_id, response_id, principle_id, annotator_id, answer, evidence, feedback_id, extractor,
           NULL::VARCHAR AS item, run_id, created_at
    FROM principle_judgments
    UNION ALL
    SELECT judgment_id, response_id, principle_id, annotator_id, answer, evidence, NULL AS feedback_id, NULL AS extractor,
           comparison_id AS item, run_id, created_at
    FROM (SELECT * FROM principle_votes WHERE withdrawn_at IS NULL
          QUALIFY row_number() OVER (PARTITION BY response_id, principle_id, annotator_id, answer
                                     ORDER BY created_at, vote_id, side) = 1) v
    WHERE NOT EXISTS (SELECT 1 FROM principle_judgments p
                      WHERE p.response_id = v.response_id AND p.principle_id = v.principle_id
                        AND p.annotator_id = v.annotator_id AND p.answer = v.answer);
