import { Button, Group } from "@mantine/core";
import { useHotkeys } from "@mantine/hooks";
import { useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { useNavigate } from "react-router";

import { t } from "../../../i18n";
import { keyOf } from "../list/filters";
import type { Page } from "../list/useComparisons";

/** The comparison before and after this one in the list it was opened from, as far as that is loaded. */
export function Neighbours({ id, search }: { id: string; search: string }) {
  const navigate = useNavigate();
  const pages = useQueryClient().getQueryData<InfiniteData<Page>>(["comparisons", keyOf(new URLSearchParams(search))]);
  const ids = pages?.pages.flatMap((page) => page.rows.map((row) => row.comparison_id)) ?? [];
  const at = ids.indexOf(id);
  const go = (to: string | undefined) => to !== undefined && void navigate(`/data/comparisons/${to}`, { state: { search }, replace: true });
  const before = at > 0 ? ids[at - 1] : undefined;
  const after = at >= 0 ? ids[at + 1] : undefined;
  useHotkeys([
    ["k", () => go(before)],
    ["j", () => go(after)],
    ["Escape", () => void navigate({ pathname: "/data", search, hash: id })],
  ]);
  if (at < 0) return null;
  return (
    <Group gap={4} wrap="nowrap">
      <Button variant="default" disabled={before === undefined} onClick={() => go(before)} aria-keyshortcuts="k">
        {t("Previous (k)")}
      </Button>
      <Button variant="default" disabled={after === undefined} onClick={() => go(after)} aria-keyshortcuts="j">
        {t("Next (j)")}
      </Button>
    </Group>
  );
}
