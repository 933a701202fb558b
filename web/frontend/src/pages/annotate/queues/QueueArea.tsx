import { Anchor, Group, Stack, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link, NavLink, useParams } from "react-router";

import { api, body } from "../../../api/client";
import { t } from "../../../i18n";
import { queuePages } from "./questions";

/** What those who run a queue see of it: its name, and the ways between its pages. */
export function QueueArea({ children }: { children: ReactNode }) {
  const { queue = "" } = useParams();
  const { data } = useQuery({
    queryKey: ["queue", queue],
    queryFn: () => body(api.GET("/api/queues/{queue}", { params: { path: { queue } } })),
  });
  const at = `/annotate/queue/${encodeURIComponent(queue)}`;
  return (
    <Stack gap="sm">
      <Title order={1} style={{ overflowWrap: "anywhere" }}>
        <Anchor component={Link} to="/annotate" inherit c="inherit" underline="never" className="dim">
          {t("Annotate")}
        </Anchor>{" "}
        / {data?.title ?? queue}
      </Title>
      <Group component="nav" gap="md" aria-label={t("Pages of this queue")} className="queue-pages">
        {queuePages().map(([page, label]) => (
          <Anchor key={page} component={NavLink} to={`${at}/${page}`} size="sm">
            {label}
          </Anchor>
        ))}
        <Anchor component={Link} to={at} size="sm">
          {t("Annotate it")}
        </Anchor>
      </Group>
      {children}
    </Stack>
  );
}
