import createClient, { type Middleware } from "openapi-fetch";

import { t } from "../i18n";
import { Problem, problemOf } from "./problems";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];

let csrf: string | null = null;

/** What changes must carry; known once somebody is signed in. */
export function setCsrf(token: string | null): void {
  csrf = token;
}

const guard: Middleware = {
  onRequest({ request }) {
    if (csrf !== null && !["GET", "HEAD"].includes(request.method)) request.headers.set("X-CSRF-Token", csrf);
    return request;
  },
  async onResponse({ response }) {
    if (!response.ok) throw await problemOf(response);
    return response;
  },
  onError({ error }) {
    return error instanceof Problem ? error : new Problem(0, "unreachable", t("the server cannot be reached"));
  },
};

/**
 * The typed client of every route: `const { data } = await api.GET("/api/session")`. It throws a `Problem` for every
 * reply that is not a success. Its fetch is looked up at each call, so that tests can replace it.
 */
export const api = createClient<paths>({ baseUrl: window.location.origin, fetch: (request) => globalThis.fetch(request) });
api.use(guard);

/** The body of a reply that has one. */
export async function body<T>(reply: Promise<{ data?: T }>): Promise<T> {
  const { data } = await reply;
  if (data === undefined) throw new Problem(0, "empty", t("the server's reply was empty"));
  return data;
}
