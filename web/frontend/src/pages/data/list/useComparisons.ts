import { useInfiniteQuery, type InfiniteData } from "@tanstack/react-query";
import { useEffect } from "react";

import { api, body, type Schemas } from "../../../api/client";
import type { Query } from "./filters";

export type Page = Schemas["ComparisonList"];
export type Row = Schemas["ComparisonRow"];

/** The first page fills a screen, and is there sooner for being short. */
const FIRST = 30;
const NEXT = 80;
/** A page of fewer rows that is not the last one: matches are rare, and somebody waits for them. */
export const SHORT = FIRST;

/** Pages of one question. They stay as they were read: reading all again at each visit would take as long as before. */
export function useComparisons(key: string, query: Query) {
  return useInfiniteQuery<Page, Error, InfiniteData<Page>, string[], string | null>({
    queryKey: ["comparisons", key],
    queryFn: ({ pageParam, signal }) => {
      const page = pageParam === null ? { limit: FIRST } : { limit: NEXT, after: pageParam };
      return body(api.GET("/api/comparisons", { params: { query: { ...query, ...page } }, signal }));
    },
    initialPageParam: null,
    getNextPageParam: (last) => last.after,
    staleTime: Infinity,
  });
}

export interface Counted {
  matches: number;
  /** Of all comparisons, how many have been counted through: 1 at the end. */
  share: number;
}

/** How many match, counted on while the page is open. */
export function useCount(key: string, query: Query, enabled: boolean): Counted | null {
  const { data, hasNextPage, isFetching, isError, fetchNextPage } = useInfiniteQuery({
    queryKey: ["comparisons-count", key],
    queryFn: ({ pageParam, signal }) => {
      const after = pageParam === null ? {} : { after: pageParam };
      return body(api.GET("/api/comparisons/count", { params: { query: { ...query, ...after } }, signal }));
    },
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.after,
    staleTime: Infinity,
    enabled,
  });
  useEffect(() => {
    if (enabled && hasNextPage && !isFetching && !isError) void fetchNextPage();
  }, [enabled, hasNextPage, isFetching, isError, fetchNextPage, data]);
  const last = data?.pages.at(-1);
  if (data === undefined || last === undefined) return null;
  const matches = data.pages.reduce((sum, part) => sum + part.matches, 0);
  return { matches, share: last.after === null || last.total === 0 ? 1 : last.examined / last.total };
}
