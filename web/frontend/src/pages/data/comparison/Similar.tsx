import { Anchor, Button, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { PoolBadge } from "../../../components/PoolBadge";
import { Failure, Waiting } from "../../../components/States";
import { figure } from "../../../format/figure";
import { t } from "../../../i18n";
import { Section } from "./Section";

/** The comparisons nearest to this one, once somebody asks, and a queue of them. */
export function Similar({ id }: { id: string }) {
  const [asked, setAsked] = useState(false);
  const curator = useAllows("curate");
  const { data, error, failureReason } = useQuery({
    queryKey: ["similar", id],
    queryFn: () => body(api.GET("/api/comparisons/{comparison_id}/similar", { params: { path: { comparison_id: id }, query: { most: 10 } } })),
    enabled: asked,
    staleTime: 60_000,
  });
  return (
    <Section title={t("Similar comparisons")}>
      {!asked ? (
        <Button variant="default" onClick={() => setAsked(true)}>
          {t("Find similar ones")}
        </Button>
      ) : data === undefined ? (
        error !== null || failureReason !== null ? <Failure error={error ?? failureReason} /> : <Waiting />
      ) : !data.embedded ? (
        <Stack gap="xs" align="start">
          <Text size="sm">
            {data.space === null
              ? t("Nothing has been embedded yet: the vectors by which similar comparisons are found have to be made once.")
              : t("This comparison has no vector yet: it came after the others were embedded.")}
          </Text>
          {curator ? (
            <Button component={Link} to="/jobs/new/embed" variant="light">
              {t("Make the vectors")}
            </Button>
          ) : (
            <Text size="sm">{t("An administrator or curator can make them.")}</Text>
          )}
        </Stack>
      ) : (
        <Stack gap="xs">
          <Stack gap={2} component="ol" p={0} m={0} style={{ listStyle: "none" }}>
            {data.rows.map((row) => (
              <Group key={row.comparison_id} component="li" gap="xs" wrap="nowrap">
                <Text size="sm" w={48} style={{ flexShrink: 0 }}>
                  {figure(row.similarity, 2)}
                </Text>
                <PoolBadge pool={row.pool} />
                <Anchor component={Link} to={`/data/comparisons/${row.comparison_id}`} size="sm" truncate dir="auto" style={{ minWidth: 0 }}>
                  {row.prompt}
                </Anchor>
              </Group>
            ))}
          </Stack>
          <Text size="xs" className="dim">
            {t("Nearest by {{space}} among {{total}} comparisons", { space: data.space, total: data.searched })}
            {data.missing > 0 && t("; {{missing}} without a vector are not searched", { missing: data.missing })}
          </Text>
          {curator && (
            <Group>
              <Button component={Link} to={`/annotate/new?similar_to=${id}`} variant="light">
                {t("Queue of these")}
              </Button>
            </Group>
          )}
        </Stack>
      )}
    </Section>
  );
}
