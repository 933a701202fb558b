import { Badge } from "@mantine/core";

const COLOURS: Record<string, string> = { gold: "yellow", silver: "gray", recycled: "cyan", pending: "blue", discarded: "red", unverified: "gray" };

/** A pool, by name and colour. */
export function PoolBadge({ pool }: { pool: string }) {
  return (
    <Badge color={COLOURS[pool] ?? "gray"} variant={pool === "unverified" ? "outline" : "light"} size="xs" radius="sm" style={{ minWidth: "max-content" }}>
      {pool}
    </Badge>
  );
}
