import { Badge } from "@mantine/core";

import { t, textKey } from "../i18n";

const COLOURS: Record<string, string> = { gold: "yellow", silver: "gray", recycled: "cyan", pending: "blue", discarded: "red", unverified: "gray" };

const NAMES: Record<string, string> = {
  gold: textKey("gold"),
  silver: textKey("silver"),
  recycled: textKey("recycled"),
  pending: textKey("pending"),
  discarded: textKey("discarded"),
  unverified: textKey("unverified"),
};

/** A pool's name in the person's language. */
export function poolName(pool: string): string {
  return t(NAMES[pool] ?? pool);
}

/** Pools to choose from. */
export function poolChoices<Pool extends string>(pools: Pool[]): { value: Pool; label: string }[] {
  return pools.map((value) => ({ value, label: poolName(value) }));
}

/** A pool, by name and colour. */
export function PoolBadge({ pool }: { pool: string }) {
  return (
    <Badge color={COLOURS[pool] ?? "gray"} variant={pool === "unverified" ? "outline" : "light"} size="xs" radius="sm" style={{ minWidth: "max-content" }}>
      {poolName(pool)}
    </Badge>
  );
}
