import { Problem } from "../../api/problems";

/** For requests that do the same when they are sent twice: what passes by itself is tried again until it has passed. */
export const AGAIN = {
  retry: (failures: number, error: Error) => error instanceof Problem && error.passing && failures < 100,
  retryDelay: (_: number, error: Error) => 1000 * ((error instanceof Problem && error.retryAfter) || 3),
};
