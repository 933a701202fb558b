import { Button, Group, Text } from "@mantine/core";

import { count } from "../../../format/count";
import { t } from "../../../i18n";


/** Which of many are shown, and the ones before and after. `page`: from 0. */
export function Pager({ page, size, total, onPage }: { page: number; size: number; total: number; onPage: (page: number) => void }) {
  if (total <= size && page === 0) return null;
  const first = page * size;
  return (
    <Group gap="xs" component="nav" aria-label={t("Pages")}>
      <Button variant="default" disabled={page === 0} onClick={() => onPage(page - 1)}>{t("Before")}</Button>
      <Text size="sm" className="dim">
        {first < total ? t("{{first}} to {{min}} of {{total}}", { first: count(first + 1), min: count(Math.min(first + size, total)), total: count(total) }) : t("{{total}} in all", { total: count(total) })}
      </Text>
      <Button variant="default" disabled={first + size >= total} onClick={() => onPage(page + 1)}>
        {t("After")}
      </Button>
    </Group>
  );
}
