import { Anchor, Group, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { Empty } from "../../../components/States";
import { t } from "../../../i18n";
import { Loaded } from "../../curate/shared/Loaded";
import { MakeTrainingSet } from "./MakeTrainingSet";
import { SetCard } from "./SetCard";

/** Making a training set of what is labelled, and those there are. */
export function TrainingSetsPage() {
  const curator = useAllows("curate");
  const query = useQuery({ queryKey: ["training-sets", "all"], queryFn: () => body(api.GET("/api/training-sets")) });
  const facets = useQuery({
    queryKey: ["comparison-facets"],
    queryFn: () => body(api.GET("/api/comparisons/facets")),
    staleTime: 60_000,
    enabled: curator && !query.isPending,
  });
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Title order={1}>{t("Training sets")}</Title>
        <Anchor component={Link} to="/data" size="sm">{t("All comparisons")}</Anchor>
      </Group>
      <Text size="sm" className="dim">
        {t("A training set is a selection of labelled comparisons, fixed under a name: it never changes, whatever is decided later. Prompts that are held out are in no pair of the other part.")}
      </Text>
      {curator ? (
        <div className="panel">
          <MakeTrainingSet sources={facets.data?.sources.map(({ value }) => value)} />
        </div>
      ) : (
        <Text size="sm" className="dim">{t("Making and downloading them takes the role curator.")}</Text>
      )}
      <Loaded query={query}>
        {({ sets }) =>
          sets.length === 0 ? (
            <Empty title={t("There are no training sets yet")}>
              {t("One is made above, of comparisons that have a label.")}
            </Empty>
          ) : (
            sets.map((set) => <SetCard key={set.id} set={set} />)
          )
        }
      </Loaded>
    </Stack>
  );
}
