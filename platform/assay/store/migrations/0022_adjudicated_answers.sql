-- How an answer on what is no pair was given, as the first part of its judgments' origin: 'adjudication:blind' or
-- 'adjudication:open'; NULL: an annotator's.
ALTER TABLE queue_answers ADD COLUMN role VARCHAR;
