-- Conversations that are more than text: images, tool definitions, tool calls and results, thinking, responses of several
-- turns. The JSON holds the whole (assay.conversation); `messages` and `content` then hold its text view. NULL: `messages`
-- and `content` are the whole, as in every row from before.
ALTER TABLE prompts ADD COLUMN conversation JSON;
ALTER TABLE responses ADD COLUMN turns JSON;

-- Files of the workspace's folder media, which those parts name by the hash of their bytes. One row for each file.
CREATE TABLE media (
    content_hash VARCHAR NOT NULL,
    media_type   VARCHAR NOT NULL,
    bytes        BIGINT NOT NULL,
    width        INTEGER,
    height       INTEGER,
    origin_url   VARCHAR,                  -- where it was fetched from, or the path that the source gave
    run_id       VARCHAR
);
