import { Loader, Text } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import type { InfiniteData, UseInfiniteQueryResult } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import { useLocation, useNavigate } from "react-router";

import { Failure } from "../../../components/States";
import { count } from "../../../format/count";
import { t } from "../../../i18n";
import { ComparisonRow } from "./ComparisonRow";
import type { Page, Row } from "./useComparisons";

interface Props {
  rows: Row[];
  pages: UseInfiniteQueryResult<InfiniteData<Page>>;
  /** No further rows are asked for: somebody stopped the search. */
  paused: boolean;
}

/**
 * A grid of which only the rows in view exist. One of them is current: arrows or j and k move it, Enter opens it. Rows
 * are asked for before the end comes into view, and, where few match, until the view is full.
 */
export function ComparisonTable({ rows, pages, paused }: Props) {
  const { hash, search } = useLocation();
  const needle = new URLSearchParams(search).get("text")?.trim() ?? "";
  const navigate = useNavigate();
  const narrow = useMediaQuery("(max-width: 48em)") ?? false;
  const height = narrow ? 84 : 46;
  const head = narrow ? 0 : 27;
  const grid = useRef<HTMLDivElement>(null);
  // Coming back from a comparison, the address names the row it was.
  const returned = rows.findIndex((row) => `#${row.comparison_id}` === hash);
  const [current, setCurrent] = useState(Math.max(returned, 0));
  // eslint-disable-next-line react-hooks/incompatible-library -- not memoised by the compiler, and need not be
  const visible = useVirtualizer({
    count: rows.length,
    getScrollElement: () => grid.current,
    estimateSize: () => height,
    overscan: 12,
    initialOffset: Math.max(0, returned - 4) * height,
    scrollMargin: head,
    scrollPaddingStart: head,
  });
  useEffect(() => visible.measure(), [height, visible]);
  // Keys work at once, also after Escape from a comparison; whoever is elsewhere on the page stays there.
  useEffect(() => {
    if (document.activeElement === document.body) grid.current?.focus({ preventScroll: true });
  }, []);
  const items = visible.getVirtualItems();
  const end = items.at(-1)?.index ?? -1;
  const { hasNextPage, isFetching, isError, fetchNextPage } = pages;
  useEffect(() => {
    if (!paused && end >= rows.length - 25 && hasNextPage && !isFetching && !isError) void fetchNextPage();
  }, [paused, end, rows.length, hasNextPage, isFetching, isError, fetchNextPage, pages.data]);

  const open = (index: number) => {
    const row = rows[index];
    if (row === undefined) return;
    void navigate({ search, hash: row.comparison_id }, { replace: true });
    void navigate(`/data/comparisons/${row.comparison_id}`, { state: { search } });
  };
  const move = (to: number) => {
    const index = Math.min(Math.max(to, 0), rows.length - 1);
    setCurrent(index);
    visible.scrollToIndex(index);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor((grid.current?.clientHeight ?? 400) / height) - 1);
    const moves: Record<string, number> = {
      ArrowDown: current + 1,
      j: current + 1,
      ArrowUp: current - 1,
      k: current - 1,
      PageDown: current + page,
      PageUp: current - page,
      Home: 0,
      End: rows.length - 1,
    };
    const to = moves[event.key];
    if (to !== undefined) move(to);
    else if (event.key === "Enter") open(current);
    else return;
    event.preventDefault();
  };
  return (
    <div className="panel comparisons">
      <div
        role="grid"
        ref={grid}
        tabIndex={0}
        aria-label={t("Comparisons: arrows or j and k move, Enter opens")}
        aria-rowcount={hasNextPage ? -1 : rows.length + 1}
        aria-colcount={6}
        aria-activedescendant={rows[current] && `row-${rows[current].comparison_id}`}
        className="comparisons-grid"
        onKeyDown={onKeyDown}
      >
        <div role="rowgroup" className="comparisons-top">
          <div role="row" aria-rowindex={1} className="comparisons-row comparisons-head">
            {[t("Prompt"), t("Response A"), t("Response B"), t("Pool"), t("Source"), t("Opinions")].map((title) => (
              <div role="columnheader" key={title}>
                {title}
              </div>
            ))}
          </div>
        </div>
        <div role="rowgroup" style={{ height: visible.getTotalSize(), position: "relative" }}>
          {items.map((item) => (
            <ComparisonRow
              key={item.key}
              row={rows[item.index]!}
              index={item.index}
              top={item.start - head}
              height={item.size}
              current={item.index === current}
              narrow={narrow}
              needle={needle}
              open={open}
            />
          ))}
        </div>
      </div>
      <div className="comparisons-foot" role="status">
        {isError ? (
          <Failure error={pages.error} />
        ) : pages.failureReason !== null ? (
          <Failure error={pages.failureReason} />
        ) : hasNextPage ? (
          isFetching && <Loader size={12} role="img" aria-label={t("Loading further rows")} />
        ) : (
          <Text size="xs" className="dim">{t("That is all.")}</Text>
        )}
        <Text size="xs" className="dim" visibleFrom="sm">
          {rows.length > 0 && t("{{current}} of {{rows}} loaded; j k move, Enter opens", { current: count(current + 1), rows: count(rows.length) })}
        </Text>
      </div>
    </div>
  );
}
