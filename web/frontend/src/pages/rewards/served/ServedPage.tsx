import { Anchor, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router";

import { api, body } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { Empty, Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";
import { EndpointCard } from "./EndpointCard";
import { ServeForm } from "./ServeForm";
import { ServingKeys } from "./ServingKeys";
import { changesSoon, isOver } from "./states";

const SOON_MS = 1_000;
const LATER_MS = 10_000;
const ENDED_SHOWN = 2;

/** Models served from here: start, stop, swap, and the keys of those who ask them. `?model=NAME` opens the form with it. */
export function ServedPage() {
  const curator = useAllows("curate");
  const [search] = useSearchParams();
  const { data, failureReason: error } = useQuery({
    queryKey: ["rewards", "endpoints"],
    queryFn: () => body(api.GET("/api/rewards/endpoints")),
    refetchInterval: ({ state }) => (state.data?.endpoints.some(changesSoon) ? SOON_MS : LATER_MS),
  });
  const [all, showAll] = useState(false);
  if (data === undefined) return error === null ? <Waiting what={t("Asking the served models")} /> : <Failure error={error} />;
  const ended = data.endpoints.filter(isOver);
  return (
    <Stack gap="md">
      {curator && <ServeForm models={data.models} chosen={search.get("model")} key={search.get("model")} />}
      {data.endpoints.length === 0 && (
        <Empty title={t("No model is served from here yet")}>
          {t("A served model answers trainers and the playground over HTTP, and goes on when this page's server ends.")}
        </Empty>
      )}
      {[...data.endpoints.filter((one) => !isOver(one)), ...ended.slice(0, all ? undefined : ENDED_SHOWN)].map((endpoint) => (
        <EndpointCard key={endpoint.id} endpoint={endpoint} models={data.models ?? []} />
      ))}
      {!all && ended.length > ENDED_SHOWN && (
        <Anchor component="button" size="sm" ta="left" onClick={() => showAll(true)}>
          {t("Show {{number}} more that have ended", { number: ended.length - ENDED_SHOWN })}
        </Anchor>
      )}
      {data.external.length > 0 && (
        <Text size="sm" className="dim">
          {t("Started elsewhere and named when this page's server began: {{addresses}}. They are stopped where they run.", {
            addresses: data.external.join(", "),
          })}
        </Text>
      )}
      {curator && (
        <>
          <Title order={2} size="h4">
            {t("Keys of those who ask")}
          </Title>
          <ServingKeys />
        </>
      )}
    </Stack>
  );
}
