import { Button, Group, Text } from "@mantine/core";

import { count } from "../../../format/count";


/** Which of many are shown, and the ones before and after. `page`: from 0. */
export function Pager({ page, size, total, onPage }: { page: number; size: number; total: number; onPage: (page: number) => void }) {
  if (total <= size && page === 0) return null;
  const first = page * size;
  return (
    <Group gap="xs" component="nav" aria-label="Pages">
      <Button variant="default" disabled={page === 0} onClick={() => onPage(page - 1)}>
        Before
      </Button>
      <Text size="sm" className="dim">
        {first < total ? `${count(first + 1)} to ${count(Math.min(first + size, total))} of ${count(total)}` : `${count(total)} in all`}
      </Text>
      <Button variant="default" disabled={first + size >= total} onClick={() => onPage(page + 1)}>
        After
      </Button>
    </Group>
  );
}
