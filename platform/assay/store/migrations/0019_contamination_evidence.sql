-- Contamination beyond shared runs of words: responses are checked too, against prompts and responses of benchmarks, and
-- each hit says what kind of evidence it is.

-- Responses that a benchmark's file holds beside its prompts; part of what content_hash stands for.
CREATE TABLE benchmark_responses (
    benchmark VARCHAR NOT NULL,
    prompt_id VARCHAR NOT NULL,
    content   VARCHAR NOT NULL,
    run_id    VARCHAR
);

-- `responses`: how many were checked; NULL: by an earlier version, which read prompts alone. `encoder`: of the tier of
-- embeddings, '' where it was off.
ALTER TABLE contamination_checks ADD COLUMN responses BIGINT;
ALTER TABLE contamination_checks ADD COLUMN encoder VARCHAR DEFAULT '';
ALTER TABLE contamination_coverage ADD COLUMN responses BIGINT;

-- `response_id`: the response that holds the text, NULL where it is a turn of the prompt (`turn` is 0 for a response).
-- `tier`: whole, containment, run, embedding. `score`: the share of the benchmark text's information that was found
-- there, 0 to 1; the cosine similarity for the tier of embeddings. `part`: prompt or response of the benchmark.
ALTER TABLE contamination_hits ADD COLUMN response_id VARCHAR;
ALTER TABLE contamination_hits ADD COLUMN tier VARCHAR DEFAULT 'run';
ALTER TABLE contamination_hits ADD COLUMN score DOUBLE;
ALTER TABLE contamination_hits ADD COLUMN part VARCHAR DEFAULT 'prompt';
ALTER TABLE contamination_hits ADD COLUMN benchmark_text VARCHAR;

-- What each hit means for comparisons: all of its prompt, or those that have the response.
CREATE VIEW contaminated_comparisons AS
    SELECT h.*, c.comparison_id
    FROM contamination_hits h JOIN comparisons c ON c.prompt_id = h.prompt_id
        AND (h.response_id IS NULL OR h.response_id = c.response_a OR h.response_id = c.response_b);

UPDATE contamination_hits SET tier = 'whole' WHERE ngrams = 0;
