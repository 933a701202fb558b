import { Menu } from "@mantine/core";
import { IconCheck } from "@tabler/icons-react";

import { chooseLanguage, language, LANGUAGES, t, type Language } from "../i18n";

/** The languages of the interface within a menu, each by its own name. */
export function LanguageItems() {
  return (
    <>
      <Menu.Label>{t("Language")}</Menu.Label>
      {Object.entries(LANGUAGES).map(([code, name]) => (
        <Menu.Item
          key={code}
          lang={code}
          role="menuitemradio"
          aria-checked={code === language()}
          leftSection={<IconCheck size={16} visibility={code === language() ? "visible" : "hidden"} />}
          onClick={() => chooseLanguage(code as Language)}
        >
          {name}
        </Menu.Item>
      ))}
    </>
  );
}
