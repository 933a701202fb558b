import { Alert, Checkbox, Group, Stack, Text, Tooltip } from "@mantine/core";
import { IconPlugConnectedX } from "@tabler/icons-react";

import type { Schemas } from "../../../api/client";
import { t } from "../../../i18n";
import { short } from "../format";
import type { ModelChoice } from "./draft";

type Offer = Schemas["RewardServerOffer"];

export function sameModel(one: ModelChoice, other: ModelChoice): boolean {
  return one.address === other.address && one.model === other.model;
}

/** Which models are asked, by reward server. A server that does not answer says why. */
export function ModelPicker({
  servers,
  chosen,
  onChange,
}: {
  servers: Offer[];
  chosen: ModelChoice[];
  onChange: (chosen: ModelChoice[]) => void;
}) {
  const gone = chosen.filter(
    (choice) => !servers.some((server) => server.models.some((model) => sameModel(choice, { address: server.address, model: model.name }))),
  );
  return (
    <Stack gap={8} component="fieldset" style={{ border: 0, padding: 0, margin: 0 }}>
      <legend style={{ fontWeight: 600, marginBottom: 4 }}>{t("Models")}</legend>
      {servers.map((server) => (
        <Stack key={server.address} gap={4}>
          <Text size="xs" className="dim" style={{ overflowWrap: "anywhere" }}>
            {server.address}
          </Text>
          {server.error !== null && (
            <Alert color="yellow" icon={<IconPlugConnectedX size={16} />} p={6} title={t("This server does not answer")}>
              {server.error}
            </Alert>
          )}
          {server.models.map((model) => {
            const choice = { address: server.address, model: model.name };
            const on = chosen.some((other) => sameModel(other, choice));
            return (
              <Checkbox
                key={model.name}
                size="xs"
                checked={on}
                onChange={() => onChange(on ? chosen.filter((other) => !sameModel(other, choice)) : [...chosen, choice])}
                label={model.name}
                description={
                  <Tooltip label={t("version {{version}}, up to {{max_length}} tokens, parity {{parity}}", { version: model.version, max_length: model.max_length, parity: model.parity })}>
                    <span>
                      {model.kind}, {short(model.version)}, {model.calibrated ? t("calibrated") : t("not calibrated")}
                      {model.principle_use === "refused" ? "" : t(", principle {{principle_use}}", { principle_use: model.principle_use })}
                    </span>
                  </Tooltip>
                }
              />
            );
          })}
        </Stack>
      ))}
      {gone.map((choice) => (
        <Group key={`${choice.address} ${choice.model}`} gap={6}>
          <Checkbox
            size="xs"
            checked
            label={t("{{model}}, which {{address}} does not serve now", { model: choice.model, address: choice.address })}
            onChange={() => onChange(chosen.filter((other) => !sameModel(other, choice)))}
          />
        </Group>
      ))}
    </Stack>
  );
}
