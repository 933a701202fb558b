import { Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api, body } from "../../../api/client";
import { StartHere } from "../../../components/StartHere";
import { Empty } from "../../../components/States";
import { t } from "../../../i18n";
import { Loaded } from "../shared/Loaded";
import { LoopPanel } from "./LoopPanel";

/** Every loop with its iterations. */
export function LoopsPage() {
  const query = useQuery({ queryKey: ["curate", "loops"], queryFn: () => body(api.GET("/api/curate/loops")), refetchInterval: 15_000 });
  return (
    <Loaded query={query}>
      {({ loops }) =>
        loops.length === 0 ? (
          <Empty title={t("No loop has begun")}>
            {t("People and judges label a seed, a model is trained, its errors say what to label next.")}
            <StartHere actions={[["/jobs/new/stage1", t("Begin a loop")]]} />
          </Empty>
        ) : (
          <Stack gap="sm">
            {loops.map((loop) => (
              <LoopPanel key={loop.name} loop={loop} />
            ))}
          </Stack>
        )
      }
    </Loaded>
  );
}
