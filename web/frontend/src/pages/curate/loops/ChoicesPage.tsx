import { Anchor, Group, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Trans } from "react-i18next";
import { Link, useParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty } from "../../../components/States";
import { figure } from "../../../format/figure";
import { t } from "../../../i18n";
import { Loaded } from "../shared/Loaded";
import { PairCard } from "../shared/PairCard";
import { Pager } from "../shared/Pager";
import { usePage } from "../shared/usePage";

/** What an iteration asked about, and the error on gold that led there. */
export function ChoicesPage() {
  const { loop = "", iteration = "" } = useParams();
  const [page, setPage] = usePage();
  const number = Number(iteration);
  const query = useQuery({
    queryKey: ["curate", "choices", loop, number, page],
    queryFn: () =>
      body(api.GET("/api/curate/loops/{loop}/iterations/{iteration}", { params: { path: { loop, iteration: number }, query: { page } } })),
    placeholderData: keepPreviousData,
    enabled: Number.isInteger(number),
  });
  return (
    <Stack gap="sm">
      <Group gap="xs">
        <Title order={2}>{t("{{loop}}, iteration {{iteration}}", { loop, iteration })}</Title>
        <Anchor component={Link} to="/curate/loops" size="sm">{t("all loops")}</Anchor>
      </Group>
      <Loaded query={query}>
        {(data) =>
          data.total === 0 ? (
            <Empty title={t("This iteration has asked about nothing")} />
          ) : (
            <Stack gap="xs">
              <Text size="sm" className="dim">
                {t("{{comparisons}} in the order they were chosen", { comparisons: t("{{count}} comparisons", { count: data.total }) })}
              </Text>
              {data.choices.map((choice) => (
                <PairCard key={choice.pair.comparison_id} pair={choice.pair}>
                  <Why choice={choice} />
                </PairCard>
              ))}
              <Pager page={page} size={data.page_size} total={data.total} onPage={setPage} />
            </Stack>
          )
        }
      </Loaded>
    </Stack>
  );
}

function Why({ choice }: { choice: Schemas["LoopChoice"] }) {
  return (
    <Text size="xs" className="dim">
      {t("to {{route}};", { route: choice.route })}{" "}
      {choice.near === null ? (
        t("part of the seed")
      ) : (
        <>
          <Trans
            i18nKey={"{{similarity}} similar to <a>a gold pair</a> whose label the model gave p = {{p}}"}
            values={{ similarity: figure(choice.similarity, 2), p: figure(choice.p, 2) }}
            components={{ a: <Anchor component={Link} to={`/data/comparisons/${choice.near}`} size="xs" /> }}
          />
        </>
      )}
    </Text>
  );
}
